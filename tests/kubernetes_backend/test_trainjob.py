"""Tests of TrainJobs on the real Kubeflow Trainer and JobSet: how they end, and what is reported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cluster import binaries
from cluster.shell import ClusterFailed
from cluster.tenants import rules_everywhere
from cluster.trainer import TRAINER_MODULE, apply_runtimes
from kubernetes_backend.terminal import terminal_of
from kubernetes_backend.trainjob_stories import runtime
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.run.cleanup import stop_and_wait
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.status import JobPhase
from rbac import runtime_rules

if TYPE_CHECKING:
    from pathlib import Path

    from kubernetes_backend.trainjobs import Lab


async def test_programs_of_a_job_that_succeeds_have_their_ranks_and_addresses(lab: Lab) -> None:
    """Each node has the variables of torchrun and `env://`; rank 0 is completion index 0, and its log is the job's."""
    script = """
    echo "$RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"
    echo "$PET_NODE_RANK of $PET_NNODES at $PET_MASTER_ADDR:$PET_MASTER_PORT, attempt $PTJOB_ATTEMPT"
    df /dev/shm | tail -1 | awk '{print $2}'
    """

    conclusion = await lab.run(script, shared_memory="8Mi")

    ref = conclusion.result["job"]["name"] if conclusion.result else ""
    address = f"{ref}-node-0-0.{ref}"
    assert conclusion.outcome is Outcome.SUCCEEDED
    assert lab.lines == [f"0 of 2 at {address}:29500", f"0 of 2 at {address}:29500, attempt 1", "8192"]
    assert conclusion.result is not None
    assert (conclusion.result["job"]["kind"], conclusion.result["rank0"]) == ("TrainJob", f"{ref}-node-0-0")
    assert (conclusion.status.phase, conclusion.status.reason) == (JobPhase.SUCCEEDED, "AllJobsCompleted")


def test_a_check_up_sees_trainer_and_jobset(lab: Lab, tmp_path: Path) -> None:
    """The real ones, with their running versions and the fields that a TrainJob has there."""
    terminal = terminal_of(lab.cluster, lab.namespace, tmp_path)

    checks = {check["about"]: check for check in json.loads(terminal.ptjob("doctor", "-o", "json").stdout)}

    version = binaries.module_version(binaries.TRAINER.folder / "go.mod", TRAINER_MODULE)
    assert checks["Kubeflow Trainer"]["is_good"] is True
    assert checks["Kubeflow Trainer"]["result"].endswith(f" is ready, version {version}")
    assert checks["JobSet"]["is_good"] is True, checks["JobSet"]
    assert " is ready, version " in checks["JobSet"]["result"]
    served = checks["TrainJob of trainer.kubeflow.org/v1alpha1"]["result"]
    assert served == "served, with the fields of Trainer 2.2 or newer"


def test_the_longest_name_of_a_job_that_fetches_data_is_one_that_jobset_takes(lab: Lab) -> None:
    """JobSet's webhook checks it; with one letter more, the names of the step's pods would be too long."""
    spec = {"runtimeRef": {"name": "torchtune"}, "initializer": {"dataset": {"storageUri": "hf://a/b"}}}
    manifest = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "d" * 60}}
    owner = Owner(instance="test", ids={}, labels={})
    job = TrainingJob.parse(manifest={**manifest, "spec": spec})
    name = kinds.named("TrainJob").render(job, owner=owner, attempt=1).manifest["metadata"]["name"]
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}
    step = {"completions": 1, "parallelism": 1, "template": {"spec": pod}}
    jobs = [{"name": "dataset-initializer", "replicas": 1, "template": {"spec": step}}]

    def create(name: str) -> str:
        meta = {"name": name, "namespace": lab.namespace}
        made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta}
        text = json.dumps({**made, "spec": {"replicatedJobs": jobs}})
        return lab.cluster.kubectl("create", "--dry-run=server", "--filename", "-", stdin=text)

    assert name in create(name)
    with pytest.raises(ClusterFailed, match="pod names generated for this JobSet will exceed 63 characters"):
        create(f"{name}x")


async def test_one_node_that_fails_is_named_with_its_last_lines(lab: Lab) -> None:
    """JobSet stops the other node; nothing runs afterwards."""
    script = "echo step 7; [ $RANK = 1 ] && { echo the disk is full >&2; exit 3; }; sleep 600 & wait"
    submission = await lab.submit(script)

    conclusion = await lab.follow(submission, limits=Limits(crash_loop_limit=1))

    why = conclusion.diagnosis
    assert why is not None
    assert why.replica == f"{submission.ref.name}-node-0-1"
    assert "node-0-1 (rank 1) exited with code 3" in why.report(submission.ref).splitlines()[0]
    assert "the disk is full" in why.log_tail
    found = [text for text in lab.sink.notices if "exited with code 3; its last lines:" in text]
    assert any("the disk is full" in text for text in found)
    await stop_and_wait(lab.backend, submission.ref)
    assert await lab.backend.pods_gone(submission.ref)


async def test_a_missing_runtime_is_said_with_those_that_there_are(lab: Lab) -> None:
    """The documented ClusterRole also allows listing the cluster's runtimes."""
    apply_runtimes(lab.cluster.kubectl, runtime("Never", 0, namespace=lab.namespace))

    with rules_everywhere(lab.cluster, lab.namespace, runtime_rules()), pytest.raises(InvalidSpec) as caught:
        await lab.submit("true", runtime="nosuch")

    assert str(caught.value) == ("runtime: 'nosuch' is not allowed; allowed: TrainingRuntime/ours, torch-distributed")
