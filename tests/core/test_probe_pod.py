from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core.errors import InvalidSpec, OutputsNotVerified
from ptjob_provider.core.inspector import FILES_IMAGE
from ptjob_provider.core.kubernetes.probe import (
    MARKER,
    ProbeOptions,
    checkpoint_pod,
    is_held_by_one_node,
    pod_name,
    probe_pod,
    rank0_of,
    read_checkpoint,
    read_report,
)
from ptjob_provider.core.outputs.checkpoints import Checkpoint
from ptjob_provider.core.outputs.contract import ResolvedOutput, ResolvedOutputs
from recorded import recorded
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SINCE = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
LONGEST_VARIABLE = 128 * 1024
"""Bytes: Linux's limit for one environment variable."""
PIN = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}
ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


def output(claim: str, path: str, container_path: str) -> ResolvedOutput:
    return ResolvedOutput(uri=f"pvc://{claim}/{path}", claim=claim, path=path, container_path=container_path)


MODEL = output("runs", "a/model.pt", "/data/a/model.pt")


def job(*, container: Mapping[str, Any] | None = None, **pod: Any) -> dict[str, Any]:
    """Return a finished job whose rank 0 has the claim `runs` mounted at /data."""
    found = recorded("pytorchjob-succeeded")
    mounts = [{"name": "storage", "mountPath": "/data"}]
    volumes = [{"name": "storage", "persistentVolumeClaim": {"claimName": "runs"}}]
    trainer = {"name": "pytorch", "image": "registry.example/digits:1", "volumeMounts": mounts, **(container or {})}
    template = {"spec": {"containers": [trainer], "volumes": volumes, **pod}}
    found["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = template
    return found


def ran(found: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return rank 0's pod as it ran on node-a, with the changes that admission made."""
    template = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    return {
        "metadata": {"name": "digits-succeeded-master-0", "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {**template["spec"], "nodeName": "node-a", **spec},
    }


def made(
    found: dict[str, Any],
    *,
    pod: dict[str, Any] | None = None,
    model: ResolvedOutput | None = MODEL,
    tfevents: ResolvedOutput | None = None,
    on_its_node: bool = False,
    **options: Any,
) -> dict[str, Any]:
    return probe_pod(
        found,
        ResolvedOutputs(model=model, tfevents=tfevents),
        rank0=rank0_of(found, [pod] if pod else []),
        name="digits-outputs-1a2b3c",
        since=SINCE,
        on_its_node=on_its_node,
        options=ProbeOptions(**options),
    )


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def environment(pod: dict[str, Any]) -> dict[str, str]:
    """Return the variables as the kubelet passes them to the container: `$$` is a dollar sign."""
    return {each["name"]: each["value"].replace("$$", "$") for each in container(pod)["env"]}


def test_the_pod_looks_where_the_training_code_wrote() -> None:
    """Rank 0's mounts, once each, and the paths as its code used them; what rank 0 could not write to, it cannot."""
    mounts = [
        {"name": "storage", "mountPath": "/data"},
        {"name": "storage", "mountPath": "/data/logs", "subPath": "tensorboard", "readOnly": True},
        {"name": "other", "mountPath": "/other"},
    ]
    volumes = [
        {"name": "storage", "persistentVolumeClaim": {"claimName": "runs"}},
        {"name": "other", "persistentVolumeClaim": {"claimName": "other"}},
    ]
    tfevents = output("runs", "tensorboard/a", "/data/logs/a")

    pod = made(job(container={"volumeMounts": mounts}, volumes=volumes), tfevents=tfevents)

    assert pod["spec"]["volumes"] == [{"name": "runs", "persistentVolumeClaim": {"claimName": "runs"}}]
    assert container(pod)["volumeMounts"] == [
        {"name": "runs", "mountPath": "/data"},
        {"name": "runs", "mountPath": "/data/logs", "readOnly": True, "subPath": "tensorboard"},
    ]
    assert json.loads(environment(pod)["PTJOB_REQUEST"]) == {
        "model": "/data/a/model.pt",
        "tfevents": "/data/logs/a",
        "roots": {"model": "/data", "tfevents": "/data/logs"},
        "since": SINCE.timestamp(),
        "started": datetime.fromisoformat(job()["metadata"]["creationTimestamp"]).timestamp(),
        "reads_clock": True,
        "doubt": "",
        "curves": False,
    }


def test_an_output_that_rank_0_sees_nowhere_is_not_verified() -> None:
    """The mounts of a job may have been changed by others; it is reported with what it has."""
    with pytest.raises(OutputsNotVerified, match=r"pvc://runs/b/model.pt: rank 0 mounts it nowhere .*/data"):
        made(job(), model=output("runs", "b/model.pt", "/elsewhere/model.pt"))


def test_the_outputs_of_a_job_without_an_image_are_looked_at_with_one_for_files() -> None:
    """Its pod is gone, and its template has no image: somebody has removed it, or a TrainJob's runtime has it."""
    without_image = job()
    del without_image["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["image"]

    assert container(made(without_image))["image"] == FILES_IMAGE
    assert container(made(without_image, image="python:3"))["image"] == "python:3"


def test_the_command_of_a_probe_pod_reports_what_is_there(tmp_path: Path) -> None:
    """Run as the container would run it: whatever the folder holds, including modules named like Python's own."""
    folder = tmp_path / "a $(HOME) $$ ü"
    folder.mkdir()
    (folder / "model.pt").write_text("parameters")
    (tmp_path / "json.py").write_text("raise SystemExit('the image has a module of this name')")
    mounts = [{"name": "storage", "mountPath": str(tmp_path)}]
    model = output("runs", "a/model.pt", str(folder / "model.pt"))
    pod = made(job(container={"volumeMounts": mounts}), model=model)

    command = [sys.executable, *container(pod)["command"][1:]]
    environ = {**environment(pod), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environ, cwd=tmp_path, check=True, capture_output=True, text=True)
    report = read_report(done.stdout)

    assert report
    assert report.model
    assert report.model.bytes == len("parameters")
    assert report.tfevents is None


def test_program_and_question_fit_into_a_variable() -> None:
    """Linux does not start a program with a longer one."""
    assert max(len(value.encode()) for value in environment(made(job())).values()) < LONGEST_VARIABLE / 2


@each_row(
    ("command", "image", "python"),
    [
        (None, "", "python3"),
        (["torchrun", "train.py"], "", "python3"),
        (["python", "train.py"], "", "python"),
        (["/opt/conda/bin/python3.11", "train.py"], "", "/opt/conda/bin/python3.11"),
        (["./venv/bin/python", "train.py"], "", "python3"),
        (["/opt/conda/bin/python3.11", "train.py"], "python:3.13-slim", "python3"),
    ],
)
def test_the_jobs_own_image_and_python_are_taken_unless_another_image_is_set(
    command: list[str] | None, image: str, python: str
) -> None:
    """The Python that its command names, unless that depends on the working directory."""
    found = container(made(job(container={"command": command, "imagePullPolicy": "Always"}), image=image))

    assert found["command"][0] == python
    assert found["image"] == (image or "registry.example/digits:1")
    assert found["imagePullPolicy"] == "IfNotPresent"


def test_a_probe_pod_requests_little_and_no_device() -> None:
    """Requests and limits are set, so that quotas and limit ranges admit it; no GPU, no variable of the job."""
    trainer = {
        "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "32"}},
        "env": [{"name": "TOKEN", "value": "secret"}],
        "envFrom": [{"secretRef": {"name": "secret"}}],
    }

    pod = made(job(container=trainer, priorityClassName="high", hostNetwork=True, initContainers=[{"name": "sync"}]))

    assert container(pod)["resources"] == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"cpu": "1", "memory": "256Mi"},
    }
    assert set(environment(pod)) == {"PTJOB_PROBE", "PTJOB_REQUEST"}
    assert not {"envFrom", "args"} & set(container(pod))
    assert not {"priorityClassName", "hostNetwork", "initContainers"} & set(pod["spec"])


def test_a_probe_pod_has_a_deadline_and_is_owned_by_the_job() -> None:
    """If the worker is killed meanwhile, nothing runs for long or outlives the job."""
    pod = made(job(), timeout=12.5)

    (owner,) = pod["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "digits-succeeded",
        "uid": job()["metadata"]["uid"],
        "blockOwnerDeletion": False,
    }
    assert pod["spec"]["activeDeadlineSeconds"] == 13
    assert pod["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("timeout", [0, -1, math.inf, math.nan])
def test_a_time_limit_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(InvalidSpec, match=r"probe_timeout: .* a positive number of seconds"):
        ProbeOptions(timeout=timeout)


def test_a_probe_pod_is_no_replica_of_the_job() -> None:
    """It has none of the labels by which the operator, Arena and the provider find replicas, and no Istio sidecar."""
    meta = made(job())["metadata"]

    assert meta["labels"] == {"ptjob-provider/probe-of": "digits-succeeded", "sidecar.istio.io/inject": "false"}
    assert meta["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert meta["namespace"] == "ml"


@pytest.mark.parametrize("name", ["digits", "a" * 63, f"{'a' * 47}-b"])
def test_the_name_of_a_probe_pod_is_that_of_its_job_and_valid(name: str) -> None:
    """At most 63 characters, as for a host name, without a dash before the suffix."""
    found = pod_name(name, "1a2b3c")

    assert found.startswith(name[:47])
    assert found.endswith("-outputs-1a2b3c")
    assert len(found) <= 63
    assert "--" not in found


def test_a_probe_pod_has_the_user_secrets_and_account_of_rank_0() -> None:
    """They decide whether the image can be pulled and the files can be read; the account's token is not mounted."""
    pod = made(
        job(
            imagePullSecrets=[{"name": "registry"}],
            serviceAccountName="trainer",
            securityContext={"runAsUser": 1000, "fsGroup": 2000, "sysctls": [{"name": "kernel.shm"}]},
        )
    )

    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["spec"]["serviceAccountName"] == "trainer"
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["securityContext"] == {
        "runAsUser": 1000,
        "fsGroup": 2000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(
    ("pod_context", "container_context"),
    [
        ({"runAsUser": 1000}, {}),
        ({"runAsNonRoot": True}, {"privileged": True}),
        ({"runAsNonRoot": False}, {"runAsUser": 1000, "runAsNonRoot": False}),
    ],
)
def test_a_probe_pod_without_root_meets_pod_security_restricted(
    pod_context: dict[str, Any], container_context: dict[str, Any]
) -> None:
    """No privileges and no capabilities, even if rank 0 had some."""
    pod = made(job(securityContext=pod_context, container={"securityContext": container_context}))

    found = container(pod)["securityContext"]
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["runAsNonRoot"] is True
    assert found["allowPrivilegeEscalation"] is False
    assert found["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in found


@pytest.mark.parametrize("container_context", [{}, {"runAsUser": 0}])
def test_a_root_keeps_what_it_needs_to_read_files_of_others(container_context: dict[str, Any]) -> None:
    """Without the runtime's capabilities root reads only its own files; the training may have changed its user."""
    pod = made(job(securityContext={"runAsUser": 0}, container={"securityContext": container_context}))

    assert "capabilities" not in container(pod)["securityContext"]
    assert "runAsNonRoot" not in container(pod)["securityContext"]


def test_a_claim_that_one_node_holds_is_looked_at_on_rank_0s_node() -> None:
    """The scheduler still places it, so that taints and the volume's own node are respected."""
    found = job(nodeSelector={"pool": "gpu"})

    spec = made(found, pod=ran(found), on_its_node=True)["spec"]

    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {"nodeSelectorTerms": [PIN]}
    assert not {"nodeName", "nodeSelector"} & set(spec)


def test_a_shared_claim_can_be_looked_at_wherever_the_job_could_have_run() -> None:
    """Rank 0's node is only preferred, because it has the image. Rules about other pods are not copied."""
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ZONE]}}
    affinity = {"nodeAffinity": rules, "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}
    found = job(nodeSelector={"pool": "gpu"}, affinity=affinity)

    spec = made(found, pod=ran(found))["spec"]

    assert spec["nodeSelector"] == {"pool": "gpu"}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": PIN}]}
    assert spec["affinity"] == {"nodeAffinity": rules | wish}


def test_without_rank_0s_pod_the_scheduler_finds_a_node() -> None:
    """The node is unknown, the template has the constraints."""
    spec = made(job(nodeSelector={"pool": "gpu"}), on_its_node=True)["spec"]

    assert spec["nodeSelector"] == {"pool": "gpu"}
    assert "affinity" not in spec


def test_a_pod_that_ran_knows_more_than_its_template() -> None:
    """Admission set a user and tolerations; the probe has the same."""
    found = job()
    taint = {"key": "dedicated", "operator": "Exists"}

    spec = made(found, pod=ran(found, securityContext={"runAsUser": 1000710000}, tolerations=[taint]))["spec"]

    assert spec["securityContext"]["runAsUser"] == 1000710000
    assert spec["tolerations"] == [taint]


@each_row(
    ("modes", "held"),
    [
        (["ReadWriteOnce"], True),
        (["ReadWriteOncePod"], True),
        (["ReadWriteMany"], False),
        (["ReadWriteOnce", "ReadWriteMany"], False),
        (["ReadOnlyMany"], False),
    ],
)
def test_access_modes_tell_whether_one_node_holds_a_claim(modes: list[str], held: bool) -> None:  # noqa: FBT001 - a case
    """The widest mode counts."""
    assert is_held_by_one_node({"spec": {"accessModes": modes}}) is held


@each_row(
    "log",
    ["", "Traceback", MARKER, f"{MARKER}{{", f"{MARKER}[]", f'{MARKER}{{"model": {{"unknown": 1}}}}', f"x{MARKER}{{}}"],
)
def test_a_log_without_a_whole_report_has_none(log: str) -> None:
    """It is truncated, of another version, or contains other programs' lines."""
    assert read_report(log) is None


def test_the_report_is_found_among_other_lines() -> None:
    """The last line with the marker counts; an image's Python may print a greeting."""
    report = read_report(f'hello\n{MARKER}{{"model": 1}}\n{MARKER}{{"model": null, "tfevents": null}}\nbye\n')

    assert report is not None
    assert report.model is None


FOLDER = output("runs", "a/ckpt", "/data/a/ckpt")


def looking(*, container: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Return the pod that looks for a checkpoint of a job that does not exist yet."""
    rendered = job(container=container)
    del rendered["metadata"]["uid"]
    return checkpoint_pod(rendered, FOLDER, name="digits-outputs-1", since=SINCE, options=ProbeOptions(**options))


def test_the_pod_that_looks_for_a_checkpoint_only_reads() -> None:
    """It has no owner, because the job does not exist yet, and ends by itself."""
    pod = looking(timeout=40)

    assert container(pod)["volumeMounts"] == [{"name": "runs", "mountPath": "/data", "readOnly": True}]
    assert pod["metadata"]["ownerReferences"] == []
    assert pod["spec"]["activeDeadlineSeconds"] == 40
    assert json.loads(environment(pod)["PTJOB_REQUEST"]) == {
        "path": "/data/a/ckpt",
        "root": "/data",
        "since": SINCE.timestamp() - 120,
        "seconds": 40,
    }
    assert all(len(text.encode()) < LONGEST_VARIABLE for text in environment(pod).values())


@each_row(
    ("image", "options", "used"),
    [("digits:1", {}, "digits:1"), ("digits:1", {"image": "py:3"}, "py:3"), (None, {}, "python:3.13-alpine")],
)
def test_the_pod_that_looks_for_a_checkpoint_has_an_image_in_any_case(
    image: str | None, options: dict[str, Any], used: str
) -> None:
    """A TrainJob's may be in its runtime only."""
    pod = looking(container={"image": image}, **options)

    assert container(pod)["image"] == used


def test_the_answer_about_a_checkpoint_is_the_last_line_of_its_form() -> None:
    log = f'warning\n{MARKER}{{"path": "old.pt"}}\n{MARKER}{{"path": "a.pt"}}\nbye\n'

    assert read_checkpoint(log) == Checkpoint(path="a.pt")
    assert read_checkpoint("warning\n") is None
