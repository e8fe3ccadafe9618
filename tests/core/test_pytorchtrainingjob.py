"""Tests of T9k's PyTorchTrainingJob: rendered fields, refused fields, and reading of the object and its pods."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import pods
from ends import NOW
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Cause, diagnose
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.history import ContainerKind, PodHistory, from_text, to_text
from ptjob_provider.core.identity import SHORTEST_NAME, JobRef, Owner
from ptjob_provider.core.kinds import PYTORCHTRAININGJOB, Replica
from ptjob_provider.core.kinds.pod_template import SHARED_MEMORY_PATH
from ptjob_provider.core.kubernetes.logs import runs
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.status import JobPhase, parse_instant
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

OWNER = Owner(instance="test", ids={"task": "same"}, labels={})
BASE: dict[str, Any] = {"name": "digits", "kind": "PyTorchTrainingJob", "image": "digits:1", "workers": 3}
SCRIPT = ["torch_mnist_trainingjob.py", "--save_path=model_state_dict.pt", "--log_dir=log", "--backend=nccl"]
GUIDES: Manifest = {
    "apiVersion": "batch.tensorstack.dev/v1beta1",
    "kind": "PyTorchTrainingJob",
    "metadata": {"name": "torch-mnist-trainingjob"},
    "spec": {
        "torchrunConfig": {"enabled": True, "maxRestarts": 3, "procPerNode": "4"},
        "replicaSpecs": [
            {
                "type": "worker",
                "replicas": 1,
                "restartPolicy": "OnFailure",
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "name": "pytorch",
                                "image": "t9kpublic/pytorch-1.13.0:sdk-0.5.2",
                                "args": SCRIPT,
                                "workingDir": "/t9k/mnt/tutorial-examples/job/pytorchtrainingjob/ddp",
                                "resources": {"limits": {"cpu": 8, "nvidia.com/gpu": 4}, "requests": {"cpu": 4}},
                                "volumeMounts": [{"name": "data", "mountPath": "/t9k/mnt"}],
                            }
                        ],
                        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "tutorial"}}],
                    }
                },
            }
        ],
        "tensorboardSpec": {"image": "tb:1", "trainingLogFilesets": ["t9k://pvc/tutorial/log"]},
    },
}
"""The manifest that the tutorial's form creates."""


def rendered(*, exact_name: bool = False, **given: Any) -> Manifest:
    job = TrainingJob.parse(**given)
    return PYTORCHTRAININGJOB.render(job, owner=OWNER, attempt=1, exact_name=exact_name).manifest


def first(manifest: Manifest) -> Manifest:
    found: Manifest = manifest["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    return found


def test_a_job_of_typed_fields_has_one_role() -> None:
    """With the defaults of all jobs: no Istio, shared memory, and a clean-up policy that stops what runs."""
    found = rendered(**BASE, command=["python", "train.py"], gpus=1, working_dir="/code", priority_class_name="high")

    [role] = found["spec"]["replicaSpecs"]
    assert (role["type"], role["replicas"], role["restartPolicy"]) == ("worker", 3, "Never")
    assert found["spec"]["runPolicy"] == {"cleanUpPolicy": "Unfinished"}
    assert "torchrunConfig" not in found["spec"]
    assert role["template"]["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert role["template"]["spec"]["priorityClassName"] == "high"
    trainer = first(found)
    assert (trainer["name"], trainer["command"], trainer["workingDir"]) == ("python", ["python", "train.py"], "/code")
    assert trainer["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert [mount["mountPath"] for mount in trainer["volumeMounts"]] == [SHARED_MEMORY_PATH]


ELASTIC = {"min_replicas": 1, "max_replicas": 4, "max_restarts": 3, "rdzv_backend": "c10d"}


@each_row(
    ("given", "config"),
    [
        ({"command": ["torchrun", "train.py"], "args": ["--lr=1"]}, {"procPerNode": "1"}),
        ({"command": ["python", "-m", "torch.distributed.run"], "gpus": 4}, {"procPerNode": "gpu"}),
        ({"nproc_per_node": 2}, {"procPerNode": "2"}),
        ({"elastic_policy": ELASTIC}, {"procPerNode": "1", "maxRestarts": 3, "rdzvBackend": "c10d"}),
    ],
)
def test_torchrun_is_started_by_the_platform(given: dict[str, Any], config: Manifest) -> None:
    """The platform writes the command line itself, and would ignore another one: script and options are arguments."""
    found = rendered(**{**BASE, "args": ["train.py", "--lr=1"], **given})

    assert found["spec"]["torchrunConfig"] == {"enabled": True, **config}
    assert "command" not in first(found)
    assert first(found)["args"] == ["train.py", "--lr=1"]


def test_an_elastic_job_says_how_far_it_may_grow() -> None:
    """A replica that fails is created again."""
    manifest = rendered(**BASE, args=["train.py"], elastic_policy={"min_replicas": 1, "max_replicas": 4})
    found = manifest["spec"]

    assert PYTORCHTRAININGJOB.least(manifest) == 1
    assert PYTORCHTRAININGJOB.least({"spec": {**found, "elastic": {"enabled": False, "minReplicas": 1}}}) is None
    assert found["elastic"] == {"enabled": True, "minReplicas": 1, "maxReplicas": 4, "expectedReplicas": 3}
    assert found["replicaSpecs"][0]["restartPolicy"] == "OnFailure"


def test_roles_that_differ_are_two() -> None:
    found = rendered(**BASE, master={"cpu": "8"}, worker={"cpu": "2"})

    cpus = [
        (role["type"], role["replicas"], role["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
        for role in found["spec"]["replicaSpecs"]
    ]
    assert cpus == [("master", 1, "8"), ("worker", 2, "2")]
    assert [replica.name.removeprefix(found["metadata"]["name"]) for replica in PYTORCHTRAININGJOB.replicas(found)] == [
        "-master-0",
        "-worker-0",
        "-worker-1",
    ]
    alone = rendered(**{**BASE, "workers": 1}, master={"cpu": "8"})
    assert [role["type"] for role in alone["spec"]["replicaSpecs"]] == ["master"]


def test_the_guides_manifest_keeps_every_field() -> None:
    """The provider's labels and variables are added, and the log's last lines where a container fails."""
    found = rendered(manifest=GUIDES)

    spec, given = found["spec"], GUIDES["spec"]
    assert {name: part for name, part in spec.items() if name != "replicaSpecs"} == {
        name: part for name, part in given.items() if name != "replicaSpecs"
    }
    trainer = dict(first(found))
    assert trainer.pop("env") == [{"name": "PTJOB_ATTEMPT", "value": "1"}]
    assert trainer.pop("terminationMessagePolicy") == "FallbackToLogsOnError"
    assert trainer == first(GUIDES)
    assert spec["replicaSpecs"][0]["restartPolicy"] == "OnFailure"


def test_a_torchrun_command_over_a_manifest_with_torchrun_becomes_its_arguments() -> None:
    """T9k ignores a command then: it becomes arguments, or is refused; the manifest's own stays."""
    found = first(rendered(manifest=GUIDES, command=["torchrun", "other.py"]))
    own = copy.deepcopy(GUIDES)
    first(own)["command"] = ["python", "ignored.py"]

    assert "command" not in found
    assert found["args"] == ["other.py", *SCRIPT]
    assert first(rendered(manifest=own, shared_memory="1Gi"))["command"] == ["python", "ignored.py"]
    with pytest.raises(InvalidSpec, match=r"^command: .*python.* torchrun, script and options"):
        rendered(manifest=GUIDES, command=["python", "other.py"])


def test_torchrun_over_a_manifest_does_not_lose_its_command() -> None:
    """The manifest's command is what torchrun starts, or the job is refused."""
    own = copy.deepcopy(GUIDES)
    del own["spec"]["torchrunConfig"]
    first(own)["command"] = ["torchrun", "train.py"]

    found = first(rendered(manifest=own, nproc_per_node=2))

    assert ("command" in found, found["args"][0]) == (False, "train.py")
    first(own)["command"] = ["python"]
    with pytest.raises(InvalidSpec, match=r"^command: "):
        rendered(manifest=own, nproc_per_node=2)


def test_fields_of_all_other_pods_are_not_rank_0s() -> None:
    """In either direction: a manifest with one role for all pods cannot express them."""
    for role in ("master", "worker"):
        with pytest.raises(InvalidSpec, match=rf"^{role}: the manifest's first role has 2 pods"):
            rendered(manifest=GUIDES, workers=2, **{role: {"cpu": "10"}})


def test_a_policy_of_a_manifest_is_merged_with_ours() -> None:
    """Elastic, scheduler, run mode: what nothing overrides stays."""
    more = {
        "elastic": {"enabled": False, "maxReplicas": 9},
        "scheduler": {"t9kScheduler": {"priority": 5}},
        "runMode": {"debug": {"enabled": False}, "pause": {"enabled": True, "resumeSpecs": [{"type": "worker"}]}},
        "runPolicy": {"cleanUpPolicy": "None"},
    }
    manifest = {**GUIDES, "spec": {**GUIDES["spec"], **more}}

    kept = rendered(manifest=manifest)["spec"]
    found = rendered(manifest=manifest, queue_name="q", suspend=False, elastic_policy={"min_replicas": 1})["spec"]

    assert {name: kept[name] for name in more} == more
    assert found["scheduler"] == {"t9kScheduler": {"priority": 5, "queue": "q"}}
    assert found["runMode"] == {
        "debug": {"enabled": False},
        "pause": {"enabled": False, "resumeSpecs": [{"type": "worker"}]},
    }
    assert found["elastic"] == {"enabled": True, "maxReplicas": 9, "minReplicas": 1}


ROLE = GUIDES["spec"]["replicaSpecs"][0]


@pytest.mark.parametrize(
    "spec",
    [
        *(None, {}, {"replicaSpecs": [3]}, {"replicaSpecs": [{"template": {}}]}),
        {"replicaSpecs": [{**ROLE, "replicas": "two"}]},
        {"replicaSpecs": [{**ROLE, "template": {**ROLE["template"], "metadata": 3}}]},
        *({"replicaSpecs": [ROLE], name: 3} for name in ("elastic", "torchrunConfig")),
    ],
)
def test_a_manifest_of_another_shape_is_refused(spec: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"^spec"):
        rendered(manifest={**GUIDES, "spec": spec})


def test_the_last_role_grows_and_shrinks() -> None:
    roles = [{**ROLE, "type": name} for name in ("master", "worker")]
    manifest = {**GUIDES, "spec": {**GUIDES["spec"], "replicaSpecs": roles}}

    found = rendered(manifest=manifest, workers=5)

    assert [role["replicas"] for role in found["spec"]["replicaSpecs"]] == [1, 4]
    with pytest.raises(InvalidSpec, match=r"^workers: 1 "):
        rendered(manifest=manifest, workers=1)


def test_a_name_leaves_room_for_the_longest_role() -> None:
    """Pod names have at most 63 characters; at least one letter and the hash of the job's own name are left."""

    def named(kind: str, **how: Any) -> str:
        specs = [{**ROLE, "type": "worker"}, {**ROLE, "type": kind, "replicas": 11}]
        found = rendered(name="digits", manifest={**GUIDES, "spec": {**GUIDES["spec"], "replicaSpecs": specs}}, **how)
        return str(found["metadata"]["name"])

    assert len(f"{named('r' * 39)}-xxxxx-{'r' * 39}-10") == 63
    assert len(named("r" * 50)) == SHORTEST_NAME
    assert named("r" * 40, exact_name=True) == "digits"


@each_row(
    ("status", "phase", "reason"),
    [
        ({}, JobPhase.PENDING, ""),
        ({"phase": "Pending"}, JobPhase.PENDING, ""),
        ({"phase": "Resuming"}, JobPhase.PENDING, ""),
        ({"phase": "Running"}, JobPhase.RUNNING, ""),
        ({"phase": "Paused", "conditions": [("Paused", "ByUser")]}, JobPhase.SUSPENDED, "ByUser"),
        ({"phase": "Succeeded", "conditions": [("Completed", "Done")]}, JobPhase.SUCCEEDED, "Done"),
        ({"phase": "Failed", "conditions": [("ReplicaFailure", "Exit")]}, JobPhase.FAILED, "Exit"),
        ({"phase": "Unknown", "conditions": [("Failed", "Backoff")]}, JobPhase.FAILED, "Backoff"),
        ({"conditions": [("Completed", "Done")]}, JobPhase.SUCCEEDED, "Done"),
    ],
)
def test_the_phase_decides_and_else_a_condition_of_an_end(status: Any, phase: JobPhase, reason: str) -> None:
    conditions = [
        {"type": kind, "reason": why, "status": "True", "lastTransitionTime": "2026-11-20T10:05:00Z"}
        for kind, why in status.get("conditions", ())
    ]
    job = {"metadata": {"creationTimestamp": "2026-11-20T10:00:00Z"}, "status": {**status, "conditions": conditions}}

    found = PYTORCHTRAININGJOB.read_status(job)

    assert (found.phase, found.reason) == (phase, reason)
    assert (found.started_at is None) is (phase in {JobPhase.PENDING, JobPhase.SUSPENDED})
    assert PYTORCHTRAININGJOB.due_at(job) is None
    assert PYTORCHTRAININGJOB.running_since(job) is None


def test_running_since_is_the_transition_time_of_the_condition() -> None:
    running = {"type": "Running", "status": "True", "lastTransitionTime": "2026-11-20T10:05:00Z"}

    since = PYTORCHTRAININGJOB.running_since({"status": {"conditions": [running]}})

    assert since == parse_instant(running["lastTransitionTime"])


def pod(name: str, *, label: str = "", uid: str = "") -> Manifest:
    owner = {"kind": "PyTorchTrainingJob", "name": "torch-mnist-trainingjob", "uid": uid}
    labels = {"tensorstack.dev/owner-name": label} if label else {}
    return {"metadata": {"name": name, "labels": labels, "ownerReferences": [owner] if uid else []}}


JOB, POD = "torch-mnist-trainingjob", "torch-mnist-trainingjob-5b373-worker-0"


def test_a_pod_is_the_replica_that_its_name_says() -> None:
    """Without the random suffix of each run."""
    assert PYTORCHTRAININGJOB.replica_of(pod(POD, label=JOB)) == f"{JOB}-worker-0"
    assert PYTORCHTRAININGJOB.replica_of(pod(POD, uid="u")) == f"{JOB}-worker-0"
    assert PYTORCHTRAININGJOB.replica_of(pod(POD)) == POD
    assert PYTORCHTRAININGJOB.replica_of(pod("other-5b373-worker-0", label=JOB)) == "other-5b373-worker-0"
    assert PYTORCHTRAININGJOB.pod_selector(JOB) == f"tensorstack.dev/owner-name={JOB}"


def test_a_pod_belongs_to_the_job_that_owns_it_or_that_its_label_names() -> None:
    """Only the label is documented."""
    ref = JobRef(kind="PyTorchTrainingJob", namespace="team", name=JOB, uid="u")

    assert kinds.is_pod_of(pod(POD, uid="u"), ref)
    assert kinds.is_pod_of(pod(POD, label=JOB), ref)
    assert not kinds.is_pod_of(pod(POD, label=JOB, uid="another"), ref)
    assert not kinds.is_pod_of(pod(POD), ref)


def test_the_replicas_are_numbered_through_all_roles() -> None:
    assert PYTORCHTRAININGJOB.replicas(GUIDES) == (
        Replica(name=f"{JOB}-worker-0", role="worker", index=0, rank=0, gpus=4),
    )
    assert [PYTORCHTRAININGJOB.is_restarted(tasks(), f"{JOB}-worker-{index}") for index in (2, 3)] == [True, False]
    assert PYTORCHTRAININGJOB.rank0_template(GUIDES) in list(PYTORCHTRAININGJOB.templates(GUIDES))


def test_the_log_is_the_first_containers_where_none_is_called_python() -> None:
    found = pods.pod(pods.container({}, name="sidecar"), pods.container(pods.RUNNING, name="pytorch"))
    found["spec"] = {"containers": [{"name": "pytorch"}, {"name": "sidecar"}]}

    run = runs.newest(found, PYTORCHTRAININGJOB.CONTAINER)

    assert run is not None
    assert (run.container, run.pod) == ("pytorch", pods.POD)


def test_an_existing_job_can_be_paused_and_cleaned_up_but_not_expired() -> None:
    """It is paused, and cleaned up; an ended one has no time to live, and there is one version of its fields."""
    assert PYTORCHTRAININGJOB.suspended(suspend=True) == {"spec": {"runMode": {"pause": {"enabled": True}}}}
    assert PYTORCHTRAININGJOB.STOP_RUNNING_PODS is not None
    assert PYTORCHTRAININGJOB.stops_by_itself(PYTORCHTRAININGJOB.STOP_RUNNING_PODS)
    assert not PYTORCHTRAININGJOB.stops_by_itself(GUIDES)
    assert (PYTORCHTRAININGJOB.expiring(GUIDES), PYTORCHTRAININGJOB.expires(GUIDES)) == (None, False)
    assert PYTORCHTRAININGJOB.converted_for(GUIDES, frozenset()) is GUIDES


def tasks(*replicas: Manifest, **status: Any) -> Manifest:
    """Return the guide's job with three workers, and this status of its tasks."""
    job = copy.deepcopy(GUIDES)
    job["metadata"] |= {"uid": "u", "creationTimestamp": "2026-11-20T10:00:00Z"}
    job["spec"]["replicaSpecs"][0]["replicas"] = 3
    task = {"type": "worker", "restartCount": status.pop("restarts", 0), "replicas": list(replicas)}
    return {**job, "status": {"phase": "Failed", "tasks": [task], **status}}


def replica(name: str, code: int | None = None, *, phase: str = "Deleted", container: str = "pytorch") -> Manifest:
    """Return one replica's entry of the status."""
    ended = {"name": container, "state": "Terminated", "exitCode": code}
    return {"name": name, "uid": f"uid-{name}", "phase": phase, "containers": [ended] if code is not None else []}


def observed(job: Manifest, *seen: Manifest) -> PodHistory:
    """Return the history after a first observation."""
    return kinds.observe(PodHistory(), job, seen, [], now=NOW)


def test_the_end_of_a_replica_without_its_pod_is_read_from_the_status() -> None:
    """With its exit code, and as the first failure: the replica that followed the controller's signal is not one."""
    job = tasks(
        replica(f"{JOB}-5b373-worker-0", 143), replica(f"{JOB}-5b373-worker-1", 3), replica(f"{JOB}-5b373-worker-2", 0)
    )

    record = observed(job)
    found = diagnose(record, kinds.read_status(job), ranks={each.name: each.rank for each in kinds.replicas(job)})

    assert {end.replica: (end.exit_code, end.stopped) for end in record.terminations} == {
        f"{JOB}-worker-0": (143, True),
        f"{JOB}-worker-1": (3, False),
    }
    assert (found.replica, found.cause) == (f"{JOB}-worker-1", Cause.EXIT_CODE)
    assert "exited with code 3" in found.summary
    assert observed(job) == kinds.observe(record, job, [], [], now=NOW)


def test_an_end_from_the_status_has_the_time_of_the_jobs_end() -> None:
    """A status without a timestamp counts as of the job's end, and is the cause of what was observed just before."""
    gone = replica(f"{JOB}-5b373-worker-1", 139)
    ended = {"type": "Failed", "status": "True", "reason": "R", "lastTransitionTime": "2026-11-20T10:05:04Z"}
    job = tasks(gone, conditions=[ended])

    [soon], [late] = (
        kinds.observe(PodHistory(), job, [], [], now=NOW.replace(hour=hour)).terminations for hour in (11, 23)
    )

    assert soon.finished_at == late.finished_at == datetime(2026, 11, 20, 10, 5, 4, tzinfo=UTC)


def test_an_end_observed_on_a_pod_replaces_the_one_from_the_status() -> None:
    """The pod has more: the reason, and the time."""
    name = f"{JOB}-5b373-worker-1"
    job = tasks(replica(name, 3, phase="Failed"))
    seen = pods.pod(pods.container(pods.ended(3, message="ValueError: nan")), phase="Failed")
    seen["metadata"] = pod(name, uid="u")["metadata"] | {"uid": f"uid-{name}"}
    seen["spec"] = {"containers": [{"name": "pytorch"}]}

    first = observed(job)
    both = kinds.observe(first, job, [seen], [], now=NOW)

    assert [end.message for end in both.terminations] == ["ValueError: nan"]
    assert [end.message for end in observed(job, seen).terminations] == ["ValueError: nan"]


def test_a_side_car_that_failed_is_reported_only_where_the_training_did_not() -> None:
    proxy, both = (replica("x-0", 1, container="proxy") for _ in range(2))
    both["containers"].append({"name": "pytorch", "exitCode": 5})

    [of_both], [of_one] = (PYTORCHTRAININGJOB.reported(tasks(each)).ends for each in (both, proxy))

    assert (of_both.container, of_both.exit_code, of_both.kind) == ("pytorch", 5, ContainerKind.TRAINING)
    assert (of_one.container, of_one.kind) == ("proxy", ContainerKind.SIDECAR)


@pytest.mark.parametrize(
    ("counts", "restarts"), [({"restarts": 2, "backoffCount": 3}, 2), ({"backoffCount": 3}, 3), ({}, 0)]
)
def test_restarts_are_counted_by_the_status_too(counts: dict[str, int], restarts: int) -> None:
    """For pods that were never observed; the record on the job keeps them."""
    record = observed(tasks(**counts))

    assert record.restarts == restarts
    assert from_text(to_text(record)).restarts == restarts


def test_pods_are_assigned_to_replicas_by_the_status() -> None:
    """For any name and any order; a replica that the job does not request is not assigned."""
    job = tasks(replica("drawn-1"), replica("drawn-0"), replica("drawn-9"), replica(""))
    replica_of = kinds.replica_of(job)

    assert PYTORCHTRAININGJOB.reported(job).pods == {"drawn-1": f"{JOB}-worker-1", "drawn-0": f"{JOB}-worker-0"}
    assert [replica_of(pod(name, label=JOB)) for name in ("drawn-1", POD)] == [f"{JOB}-worker-1", f"{JOB}-worker-0"]
    assert PYTORCHTRAININGJOB.reported(tasks(replica("abc"), replica("def"))).pods["def"] == f"{JOB}-worker-1"
    assert kinds.replica_of(GUIDES) == PYTORCHTRAININGJOB.replica_of
