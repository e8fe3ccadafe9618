"""Tests of rendering a TrainJob for Kubeflow Trainer: the place of each field, and refused fields."""

from __future__ import annotations

from typing import Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import Manifest, Owner
from ptjob_provider.core.kinds import TRAINJOB
from ptjob_provider.core.kinds.code import DEFAULT_WORKING_DIR
from ptjob_provider.core.kinds.pod_template import SHARED_MEMORY_PATH
from ptjob_provider.core.kinds.trainer_steps import STEP, pod_template_of, replicated_jobs
from ptjob_provider.core.spec import Installation, TrainingJob
from rows import each_row

OWNER = Owner(instance="test", ids={"task": "same"}, labels={})
BASE: dict[str, Any] = {"name": "digits", "kind": "TrainJob", "image": "digits:1", "workers": 2}


def step(name: str = "node", **pod: Any) -> Manifest:
    """Return the patch of the pods of one of the runtime's steps."""
    return {"name": name, "template": {"spec": {"template": {"spec": pod}}}}


def patch(manager: str, *steps: Manifest, **of_set: Any) -> Manifest:
    """Return a patch of the runtime: of its steps, and of the JobSet itself."""
    template = {**of_set, **({"spec": {"replicatedJobs": list(steps)}} if steps else {})}
    return {"manager": manager, "trainingRuntimeSpec": {"template": template}}


NODE = step(
    volumes=[{"name": "out", "persistentVolumeClaim": {"claimName": "out"}}],
    containers=[{"name": "node", "volumeMounts": [{"name": "out", "mountPath": "/out"}]}],
)
OWN: Manifest = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "own", "uid": "dropped", "labels": {"team": "vision"}},
    "spec": {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"image": "own:1", "numNodes": 3, "command": ["torchrun", "train.py"], "future": {"kept": True}},
        "runtimePatches": [
            patch(
                "example.com/me",
                {"name": "dataset-initializer", "template": {"metadata": {"labels": {"a": "b"}}}},
                NODE,
                metadata={"labels": {"of": "the set"}},
            )
        ],
    },
    "status": {"gone": True},
}


def rendered(installation: Installation | None = None, *, exact_name: bool = False, **given: Any) -> Manifest:
    job = TrainingJob.parse(**given)
    return TRAINJOB.render(job, owner=OWNER, attempt=1, exact_name=exact_name, installation=installation).manifest


def of_pods(manifest: Manifest) -> Manifest:
    """Return the pod part of the one patch of the training nodes."""
    entries = [entry for each in manifest["spec"]["runtimePatches"] for entry in replicated_jobs(each)]
    [node] = [entry for entry in entries if entry["name"] == STEP]
    return pod_template_of(node)


def variables(manifest: Manifest) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in manifest["spec"]["trainer"]["env"]}


def test_fields_of_the_trainer_are_rendered_in_the_trainer() -> None:
    """Image, program, nodes, processes and resources are in the trainer; the runtime is Trainer's own for PyTorch."""
    found = rendered(
        **BASE, command=["python", "train.py"], args=["--lr=1"], nproc_per_node=2, gpus=1, cpu="2", suspend=True
    )

    spec = found["spec"]
    assert spec["runtimeRef"] == {"name": "torch-distributed"}
    assert spec["suspend"] is True
    assert {name: part for name, part in spec["trainer"].items() if name != "env"} == {
        "numNodes": 2,
        "numProcPerNode": 2,
        "image": "digits:1",
        "command": ["python", "train.py"],
        "args": ["--lr=1"],
        "resourcesPerNode": {"requests": {"cpu": "2"}, "limits": {"cpu": "2", "nvidia.com/gpu": "1"}},
    }


def test_volumes_and_shared_memory_go_through_a_patch_of_the_runtime() -> None:
    """With the provider's labels on the pods, and without Istio. All fields: `test_every_field_of_every_kind`."""
    found = rendered(
        **BASE,
        volumes=["data:/data:ro"],
        shared_memory="1Gi",
        labels={"team": "vision"},
    )

    template = of_pods(found)
    assert template["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert template["metadata"]["labels"].items() >= {"team": "vision", "ptjob-provider/managed": "true"}.items()
    mounts = [
        {"name": "data", "mountPath": "/data", "readOnly": True},
        {"name": "shared-memory", "mountPath": SHARED_MEMORY_PATH},
    ]
    assert template["spec"].keys() == {"volumes", "containers"}
    assert template["spec"]["containers"] == [{"name": "node", "volumeMounts": mounts}]
    assert [each["name"] for each in template["spec"]["volumes"]] == ["data", "shared-memory"]
    assert template["spec"]["volumes"][1]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}


def test_a_claim_that_is_mounted_twice_is_refused() -> None:
    """Trainer's CRD refuses it too; two volumes of one claim would be accepted, and never start."""
    with pytest.raises(InvalidSpec, match="volumes: 'data' is not allowed; allowed: one mount of each volume or claim"):
        rendered(**BASE, volumes=["data:/data", "data/models:/models"])


def test_variables_of_programs_without_torchrun_say_who_they_are() -> None:
    """Trainer sets them for torchrun only; a plain program gets the four variables that training-operator sets, too."""
    found = rendered(**BASE, nproc_per_node=4, env={"LR": "0.1"}, model="pvc://out/m.pt")

    name = found["metadata"]["name"]
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    assert variables(found) == {
        "MASTER_ADDR": f"{name}-node-0-0.{name}",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "8",
        "RANK": index,
        "PTJOB_ATTEMPT": "1",
        "PTJOB_MODEL_PATH": "/mnt/ptjob/out/m.pt",
        "LR": "0.1",
    }
    assert variables(rendered(**BASE, env={"RANK": "7"}))["RANK"] == "7"


def test_a_name_leaves_room_for_what_jobset_adds() -> None:
    """JobSet refuses a job if a pod's name could be longer than 63 characters."""
    for workers in (1, 100):
        name = rendered(**{**BASE, "name": "d" * 60, "workers": workers})["metadata"]["name"]

        assert len(f"{name}-node-0-{workers - 1}-xxxxx") == 63 - (49 + 14 + len(str(workers - 1)) < 63)


def test_a_name_leaves_room_for_the_steps_that_fetch_data_and_model() -> None:
    """Trainer runs them as `dataset-initializer` and `model-initializer`, in the same JobSet."""
    initializer = {"dataset": {"storageUri": "hf://tatsu-lab/alpaca"}, "model": {"storageUri": "hf://meta-llama/x"}}
    found = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "d" * 60}}
    spec = {"runtimeRef": {"name": "torchtune-llama3.2-1b"}, "initializer": initializer}

    name = rendered(manifest={**found, "spec": spec})["metadata"]["name"]

    assert len(f"{name}-dataset-initializer-0-0-xxxxx") == 63


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mine", {"name": "mine"}),
        ("TrainingRuntime/mine", {"kind": "TrainingRuntime", "name": "mine"}),
    ],
)
def test_a_runtime_is_the_clusters_or_the_namespaces(text: str, expected: Manifest) -> None:
    assert rendered(**BASE, runtime=text)["spec"]["runtimeRef"] == expected


REFUSED: dict[str, Any] = {
    "nproc_per_node": "gpu",
    "runtime": "Pod/mine",
    "env": {"PET_NNODES": "2"},
}


@each_row("field", REFUSED)
def test_a_value_that_a_trainjob_cannot_take_is_refused_by_its_field(field: str) -> None:
    """Fields that it lacks: `test_every_field_of_every_kind`."""
    with pytest.raises(InvalidSpec, match=rf"^{field}\b"):
        rendered(**{**BASE, field: REFUSED[field]})


def test_a_field_whose_value_is_not_known_yet_is_not_refused() -> None:
    """It may turn out to be unset."""
    given = {"gang": "{{ params.gang }}", "restart_policy": "Never"}

    TRAINJOB.check_fields(given, but=("gang", "restart_policy"))
    with pytest.raises(InvalidSpec, match=r"^restart_policy: 'Never'.*; a TrainJob has no place for it"):
        TRAINJOB.check_fields(given, but=("gang",))


@each_row(
    ("pod", "field"),
    [
        ({"hostPID": True, "containers": [{"name": "node"}]}, r"pod_template\.spec\."),
        ({"containers": [{"name": "node"}, {"name": "sidecar", "image": "envoy"}]}, r"pod_template\.spec\."),
        ({"containers": [{"name": "node", "ports": []}]}, r"pod_template\.spec\."),
        ({"initContainers": [{"name": "wait", "image": "busybox"}]}, r"init_containers: .* add one \(wait\)"),
    ],
)
def test_a_pod_template_is_refused_where_the_runtime_decides(pod: Manifest, field: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^{field}.*TrainingRuntime"):
        rendered(**BASE, pod_template={"spec": pod})


def test_the_policy_that_holds_for_every_trainjob_is_accepted() -> None:
    assert rendered(**BASE, clean_pod_policy="Running") == rendered(**BASE)


def test_an_exact_name_that_jobset_would_refuse_is_refused() -> None:
    assert rendered(**{**BASE, "name": "d" * 48}, exact_name=True)["metadata"]["name"] == "d" * 48

    with pytest.raises(InvalidSpec, match=r"^name: 'd{49}' is not allowed; .* at most 48 characters"):
        rendered(**{**BASE, "name": "d" * 49}, exact_name=True)


def test_a_manifest_keeps_what_is_not_known_here() -> None:
    """It gets the provider's labels, the attempt's variables and nothing else."""
    found = rendered(manifest=OWN, exact_name=True)

    assert "status" not in found
    assert "uid" not in found["metadata"]
    assert found["spec"]["trainer"]["future"] == {"kept": True}
    assert variables(found) == {"PTJOB_ATTEMPT": "1"}
    [own] = found["spec"]["runtimePatches"]
    assert own["manager"] == "example.com/me"
    assert own["trainingRuntimeSpec"]["template"]["metadata"] == {"labels": {"of": "the set"}}
    assert [entry["name"] for entry in replicated_jobs(own)] == ["node", "dataset-initializer"]
    assert of_pods(found)["spec"] == pod_template_of(NODE)["spec"]


def test_typed_fields_are_laid_over_a_manifest() -> None:
    """Outputs are looked up in its own volumes."""
    job = TrainingJob.parse(
        manifest=OWN, workers=5, image="other:2", active_deadline_seconds=60, queue_name="team", model="/out/m.pt"
    )

    found = TRAINJOB.render(job, owner=OWNER, attempt=1)

    spec = found.manifest["spec"]
    assert (spec["trainer"]["numNodes"], spec["trainer"]["image"]) == (5, "other:2")
    assert spec["activeDeadlineSeconds"] == 60
    assert found.manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert found.outputs.model is not None
    assert found.outputs.model.uri == "pvc://out/m.pt"


def test_the_node_may_be_spoken_of_in_several_patches_of_a_manifest() -> None:
    """The first of them gets all that they set for the node; the rest of each stays."""
    of_set, one = patch("example.com/set", metadata={"labels": {"c": "d"}}), patch("example.com/one", NODE)
    patches = [of_set, one, patch("example.com/two", step(nodeSelector={"a": "b"}))]

    found = rendered(manifest={**OWN, "spec": {**OWN["spec"], "runtimePatches": patches}})

    managers = [each["manager"] for each in found["spec"]["runtimePatches"]]
    assert managers == ["example.com/set", "example.com/one", "example.com/two"]
    assert of_pods(found)["spec"].keys() == {"volumes", "containers", "nodeSelector"}
    assert replicated_jobs(found["spec"]["runtimePatches"][2]) == []


@pytest.mark.parametrize("where", [0, 1])
def test_a_manifest_from_a_cluster_with_kueue_leaves_kueues_patch_there(where: int) -> None:
    """Its webhook adds one to each job; servers refuse a job with a second one of that name."""
    kueues = patch("kueue.x-k8s.io/manager", step(nodeSelector={"kubernetes.io/os": "linux"}))
    patches = list(OWN["spec"]["runtimePatches"])
    patches.insert(where, {**kueues, "time": "2026-11-20T08:00:00Z"})

    found = rendered(manifest={**OWN, "spec": {**OWN["spec"], "runtimePatches": patches}}, exact_name=True)

    assert found == rendered(manifest=OWN, exact_name=True)


ODD_STEPS = (3, {"spec": 3}, {"spec": {"template": 3}}, {"spec": {"template": {"spec": 3}}})
ODD_JOBS = (
    3,
    [3],
    [{}],
    [step(), {"name": "x", "template": 3}],
    *([{"name": "node", "template": x}] for x in ODD_STEPS),
)
ODD_PATCHES = (
    *(3, {"template": 3}, {"template": {"spec": 3}}),
    *({"template": {"spec": {"replicatedJobs": jobs}}} for jobs in ODD_JOBS),
)


@each_row(
    "spec",
    [
        None,
        "text",
        {"runtimeRef": "text"},
        {"runtimeRef": {}},
        {"runtimeRef": {"name": "ours"}, "trainer": 3},
        {"runtimeRef": {"name": "ours"}, "runtimePatches": "text"},
        {"runtimeRef": {"name": "ours"}, "runtimePatches": ["text"]},
        {"runtimeRef": {"name": "ours"}, "trainer": {"numNodes": "two"}},
        {"runtimeRef": {"name": "ours"}, "initializer": 3},
        *({"runtimeRef": {"name": "ours"}, "runtimePatches": [{"trainingRuntimeSpec": part}]} for part in ODD_PATCHES),
    ],
)
def test_a_manifest_of_another_shape_is_refused(spec: Any) -> None:
    with pytest.raises(ValueError, match=r"^spec") as raised:  # InvalidSpec, not the ValueError of an int
        rendered(manifest={**OWN, "spec": spec})

    assert isinstance(raised.value, InvalidSpec)


def test_the_installation_is_under_every_job() -> None:
    """Its runtime, its pods' fields, and the last change of a pod."""
    template = TrainingJob.parse(
        manifest={"apiVersion": OWN["apiVersion"], "kind": "TrainJob"},
        runtime="TrainingRuntime/ours",
        node_selector={"zone": "a"},
        pod_template={"spec": {"containers": [{"env": [{"name": "SITE", "value": "b"}]}]}},
    )

    def change(pod: Manifest) -> Manifest:
        assert pod["metadata"]["name"].endswith("-node-0-0")
        return {**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": "gate"}]}}

    found = rendered(Installation(template=template, change_pod=change), **BASE)

    assert found["spec"]["runtimeRef"] == {"kind": "TrainingRuntime", "name": "ours"}
    assert variables(found)["SITE"] == "b"
    pod = of_pods(found)["spec"]
    assert (pod["nodeSelector"], pod["schedulingGates"]) == ({"zone": "a"}, [{"name": "gate"}])


def test_a_kind_is_the_manifests_or_is_named() -> None:
    assert TrainingJob.parse(**{**BASE, "kind": "trainjob"}).named_kind == "TrainJob"
    with pytest.raises(InvalidSpec, match=r"^kind: 'PyTorchJob'.*TrainJob"):
        TrainingJob.parse(manifest=OWN, kind="PyTorchJob")
    with pytest.raises(InvalidSpec, match=r"^kind: 'TFJob'.*allowed: PyTorchJob, TrainJob, PyTorchTrainingJob"):
        TrainingJob.parse(**{**BASE, "kind": "TFJob"})


def test_trainer_counts_the_processes_by_itself_unless_a_number_is_given() -> None:
    """`auto` is its default without a number."""
    assert "numProcPerNode" not in rendered(**BASE, nproc_per_node="auto")["spec"]["trainer"]


CODE = {"runtime": "TrainingRuntime/ours", "code": "https://git.example/team/mnist.git"}


@pytest.mark.parametrize("name", ["ours", "torch-distributed"], ids=["one's own", "one's own, named as Trainer's"])
def test_code_is_fetched_by_the_runtimes_init_container(name: str) -> None:
    """The job gives it source and target; image, user and resources belong to the runtime."""
    env = {"GIT_SYNC_BRANCH": "main", "EPOCHS": "3"}

    found = rendered(**BASE, **{**CODE, "runtime": f"TrainingRuntime/{name}"}, env=env)

    pod = of_pods(found)["spec"]
    [fetching], [training] = pod["initContainers"], pod["containers"]
    values = {each["name"]: each["value"] for each in fetching["env"]}
    assert fetching.keys() == {"name", "env", "volumeMounts"}
    assert fetching["name"] == "init-code"
    assert (values["GIT_SYNC_REPO"], values["GIT_SYNC_BRANCH"]) == (CODE["code"], "main")
    assert {"name": "code-sync", "mountPath": f"{DEFAULT_WORKING_DIR}/code"} in training["volumeMounts"]
    assert "workingDir" not in training
    names = [each["name"] for each in found["spec"]["trainer"]["env"]]
    assert ("EPOCHS" in names, "GIT_SYNC_BRANCH" in names) == (True, False)


def test_other_init_containers_that_a_job_tells_something_stay_as_they_are() -> None:
    pod = {"initContainers": [{"name": "warm", "env": [{"name": "A", "value": "b"}]}]}

    found = rendered(**BASE, **CODE, pod_template={"spec": {**pod, "containers": [{"name": "node"}]}})

    inits = of_pods(found)["spec"]["initContainers"]
    assert [each["name"] for each in inits] == ["init-code", "warm"]
    assert inits[1] == pod["initContainers"][0]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({**CODE, "runtime": None}, r"^code: .* name a runtime that has one called init-code"),
        ({**CODE, "runtime": "torch-distributed"}, r"^code: a TrainJob can add no init container"),
        ({**CODE, "code": {"git": CODE["code"], "image": "mirror/sync:1"}}, r"^code\.image: the runtime's"),
    ],
    ids=["no runtime", "Trainer's own", "an image"],
)
def test_code_is_refused_where_no_runtime_can_fetch_it(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSpec, match=why):
        rendered(**BASE, **given)
