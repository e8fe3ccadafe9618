"""Tests of TrainJobs with Trainer's own runtimes, made for the namespace from the files of its module."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster import binaries
from cluster.images import INIT_IMAGE
from cluster.mpi_image import MPI
from cluster.shell import wait_until
from cluster.trainer import TRAINER_MODULE, apply_runtimes
from cluster_world import PATIENCE
from fakes import MemoryStore
from kubernetes_backend.finished import digest, prepared_volume
from kubernetes_backend.terminal import terminal_of
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds.trainer_steps import steps_of
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from recorded import OWNER
from trainer_runtimes import INITIALIZERS, SHIPPED, STEP_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kubernetes_backend.trainjobs import Lab
    from ptjob_provider.core.identity import Manifest

UNTIL_NAMES_ARE_KNOWN = "until mpirun -n 2 true 2>/dev/null; do sleep 1; done"
"""A shell waits until the names in the host file are known; without it the launcher may be started again."""


def trainers_own(lab: Lab) -> dict[str, Manifest]:
    """Return the runtimes in the module's files, each as one of the namespace."""
    folder = binaries.module_folder(binaries.TRAINER, TRAINER_MODULE) / "manifests" / "base" / "runtimes"
    documents = (yaml.safe_load(file.read_text()) for file in sorted(folder.rglob("*.yaml")))
    found = [each for each in documents if each["kind"] == "ClusterTrainingRuntime"]
    of_namespace = {"kind": "TrainingRuntime"}
    return {
        each["metadata"]["name"]: {**each, **of_namespace, "metadata": {**each["metadata"], "namespace": lab.namespace}}
        for each in found
    }


def steps_in(runtime: Manifest) -> list[Manifest]:
    steps: list[Manifest] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return steps


def containers_in(runtime: Manifest) -> Iterator[Manifest]:
    for step in steps_in(runtime):
        yield from step["template"]["spec"]["template"]["spec"]["containers"]


def with_image(runtime: Manifest, image: str) -> Manifest:
    """Return the runtime with this image in all its containers, and a local pull policy."""
    for container in containers_in(runtime):
        container |= {"image": image, "imagePullPolicy": "IfNotPresent"}
    return runtime


async def test_a_job_with_a_launcher_is_followed_at_its_launcher(lab: Lab, tell: Callable[[str], None]) -> None:
    """OpenMPI starts a process on the launcher and, over ssh, one on the node, which writes the model."""
    apply_runtimes(
        lab.cluster.kubectl, with_image(trainers_own(lab)["deepspeed-distributed"], MPI.ensure(lab.cluster, tell))
    )
    volume = prepared_volume(lab.cluster, lab.namespace)
    says = 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname), RANK is ${RANK:-not set}"'
    writes = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then echo weights > "$PTJOB_MODEL_PATH"; fi'

    submission = await lab.submit(
        f"{UNTIL_NAMES_ARE_KNOWN}; mpirun -n 2 -x PTJOB_MODEL_PATH sh -c '{says}; {writes}'",
        image=MPI.name,
        runtime="TrainingRuntime/deepspeed-distributed",
        model="pvc://data/out/m.pt",
    )
    conclusion = await lab.follow(submission)

    name = submission.ref.name
    assert conclusion.outcome is Outcome.SUCCEEDED, (conclusion, lab.lines, lab.sink.notices)
    assert sorted(line for line in lab.lines if line.startswith("rank")) == [
        f"rank 0 of 2 on {name}-launcher-0-0, RANK is not set",
        f"rank 1 of 2 on {name}-node-0-0, RANK is not set",
    ]
    assert submission.ranks == {f"{name}-launcher-0-0": 0, f"{name}-node-0-0": 1}
    assert conclusion.result is not None
    assert conclusion.result["model"]["sha256"] == digest(volume / "m.pt")
    assert conclusion.result["failed_replicas"] == []
    assert not [text for text in lab.sink.notices if "exited with" in text]


async def test_a_rank_that_fails_on_a_node_fails_the_job_at_its_launcher(lab: Lab, tell: Callable[[str], None]) -> None:
    """There mpirun says which rank it was; sshd goes on, and is stopped with the job."""
    runtime = with_image(trainers_own(lab)["mlx-distributed"], MPI.ensure(lab.cluster, tell))
    for step in steps_in(runtime):
        step["template"]["spec"]["backoffLimit"] = 0
        step["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    apply_runtimes(lab.cluster.kubectl, runtime)
    fails = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then echo the disk is full >&2; exit 3; fi'

    submission = await lab.submit(
        f"{UNTIL_NAMES_ARE_KNOWN}; mpirun -n 2 sh -c '{fails}'",
        image=MPI.name,
        runtime="TrainingRuntime/mlx-distributed",
    )
    conclusion = await lab.follow(submission)

    assert conclusion.outcome is Outcome.FAILED
    assert conclusion.diagnosis is not None
    assert conclusion.diagnosis.summary.startswith(f"{submission.ref.name}-launcher-0-0 (rank 0) exited with code 3")
    assert any("the disk is full" in line for line in conclusion.diagnosis.log_tail)


@pytest.mark.parametrize("name", SHIPPED)
async def test_each_runtime_of_trainer_makes_the_pods_that_we_count(lab: Lab, name: str) -> None:
    """Suspended, as their images are not here: Trainer and JobSet accept the job, and make a JobSet of these steps."""
    runtime = trainers_own(lab)[name]
    policy, steps = SHIPPED[name]
    apply_runtimes(lab.cluster.kubectl, runtime)

    submission = await lab.submit(
        runtime=f"TrainingRuntime/{name}", workers=3, suspend=True, node_selector={"pool": "a"}, volumes=["data:/data"]
    )

    def started() -> Manifest | None:
        found = lab.cluster.kubectl.get("trainjob", submission.ref.name, namespace=lab.namespace)
        return found if (found.get("status") or {}).get("jobsStatus") else None

    job = wait_until("Trainer to make the JobSet", started, timeout=PATIENCE)
    jobset = lab.cluster.kubectl.get("jobset", submission.ref.name, namespace=lab.namespace)
    made = {each["name"]: each["template"]["spec"] for each in jobset["spec"]["replicatedJobs"]}
    assert tuple(made) == steps
    assert policy.items() <= runtime["spec"]["mlPolicy"].items() or "mpi" in policy
    assert {step: made[step]["parallelism"] for step in steps_of(job)} == steps_of(job)
    assert [*kinds.unranked(job)] == [step for step in INITIALIZERS if step in steps]
    for step in steps_of(job):
        pod = made[step]["template"]["spec"]
        assert pod["nodeSelector"] == {"pool": "a"}
        assert "/data" in {mount["mountPath"] for each in pod["containers"] for mount in each["volumeMounts"]}


async def test_trainer_refuses_a_data_set_of_the_runtime_with_a_cache(lab: Lab) -> None:
    """Its webhook asks for a volume that the runtime does not have; the table of the documentation says so."""
    apply_runtimes(lab.cluster.kubectl, trainers_own(lab)["torch-distributed-with-cache"])
    spec = {
        "runtimeRef": {"kind": "TrainingRuntime", "name": "torch-distributed-with-cache"},
        "trainer": {"numNodes": 1, "image": INIT_IMAGE},
        "initializer": {"dataset": {"storageUri": "cache://schema/table"}},
    }
    manifest = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "digits"}}
    job = TrainingJob.parse(manifest={**manifest, "spec": spec}, namespace=lab.namespace)

    with pytest.raises(InvalidSpec, match="must have volumeMount with name - initializer"):
        await ensure_submitted(lab.backend, job, owner=OWNER, store=MemoryStore())


def stand_in_runtime(lab: Lab, script: str) -> Manifest:
    """Return a runtime with an initializer that runs this script, a stand-in for one that fetches a data set."""
    pods: dict[str, Any] = {
        "dataset-initializer": {"image": INIT_IMAGE, "command": ["sh", "-c", script]},
        "node": {"image": INIT_IMAGE},
    }
    steps = [
        {
            "name": name,
            **({"dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]} if name == "node" else {}),
            "template": {
                "metadata": {"labels": {STEP_LABEL: "trainer" if name == "node" else name}},
                "spec": {
                    "backoffLimit": 0,
                    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": name, **container}]}},
                },
            },
        }
        for name, container in pods.items()
    ]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "tune", "namespace": lab.namespace},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": steps}}},
    }


async def test_a_stand_in_initializer_that_fails_is_the_cause_and_its_log_can_be_read(lab: Lab, tmp_path: Path) -> None:
    """The nodes are never made; JobSet ends the job."""
    apply_runtimes(lab.cluster.kubectl, stand_in_runtime(lab, "echo fetching; echo no such data set >&2; exit 4"))

    submission = await lab.submit(runtime="TrainingRuntime/tune", workers=1)
    conclusion = await lab.follow(submission, limits=Limits())
    terminal = terminal_of(lab.cluster, lab.namespace, tmp_path)
    log = await asyncio.to_thread(terminal.ptjob, "logs", submission.ref.name, "-i", "dataset-initializer")
    shown = await asyncio.to_thread(terminal.ptjob, "get", submission.ref.name, "-o", "json")

    replica = f"{submission.ref.name}-dataset-initializer-0-0"
    assert conclusion.outcome is Outcome.FAILED
    assert conclusion.diagnosis is not None
    assert conclusion.diagnosis.summary.startswith(f"{replica} exited with code 4")
    assert "no such data set" in conclusion.diagnosis.log_tail
    assert log.stdout.splitlines() == ["fetching", "no such data set"]
    assert {"name": replica, "rank": None} in json.loads(shown.stdout)["replicas"]


async def test_a_job_runs_when_its_stand_in_initializer_has_ended(lab: Lab) -> None:
    """Rank 0's log is the job's; the initializer's is not in it."""
    apply_runtimes(lab.cluster.kubectl, stand_in_runtime(lab, "echo fetching"))

    conclusion = await lab.run("echo trained", runtime="TrainingRuntime/tune", workers=2)

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert lab.lines == ["trained"]
