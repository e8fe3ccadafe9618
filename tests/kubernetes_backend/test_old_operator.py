"""Tests of PyTorchJobs on a real API server with the old operator's CRD, which Arena installs: without `runPolicy`.

That operator can no longer be built: a scripted one creates real pods with its labels, and reports on them.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from cluster.boot import Cluster
from cluster.fixtures import OWN_NUMBER, skip_unless_possible
from cluster.layout import Layout
from cluster.shell import locked
from cluster.tenants import namespace_in
from kubernetes_backend.scripted_controller import ScriptedController, crd, serve
from kubernetes_backend.trainjobs import Lab
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.snapshot import look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ptjob_provider.core.identity import Manifest

pytestmark = pytest.mark.cluster

NUMBER = {"type": "integer", "format": "int32"}
REPLICA = {
    "type": "object",
    "properties": {
        "replicas": NUMBER,
        "restartPolicy": {"type": "string"},
        "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
SPEC = {
    "type": "object",
    "properties": {
        "activeDeadlineSeconds": NUMBER,
        "backoffLimit": NUMBER,
        "cleanPodPolicy": {"type": "string"},
        "ttlSecondsAfterFinished": NUMBER,
        "pytorchReplicaSpecs": {"type": "object", "additionalProperties": REPLICA},
    },
}
CRD = crd("PyTorchJob", "kubeflow.org/v1", spec=SPEC)


@pytest.fixture(scope="module")
def old_cluster(tell: Callable[[str], None]) -> Iterator[Cluster]:
    """Run a second cluster, without the training-operator, that serves the old CRD."""
    own = Cluster.of(Layout.of(os.environ, number=OWN_NUMBER), operator=False)
    skip_unless_possible(own)
    with locked(own.layout.cache / "own-cluster.lock"), own.borrowed(tell):
        yield serve(own, CRD)


@pytest.fixture
def lab(old_cluster: Cluster) -> Iterator[Lab]:
    """Return an empty namespace on it."""
    with namespace_in(old_cluster) as namespace:
        yield Lab(old_cluster, namespace, kind="PyTorchJob")


class ScriptedOldOperator(ScriptedController):
    """A stand-in for the PyTorch operator 0.7: creates a job's pods with its names and labels, and reports on them."""

    KIND = "PyTorchJob"
    LABEL = "pytorch-job-name"

    def make_pods(self) -> Manifest:
        """Create the pods of both roles, owned by the job, and set it to running; return the job."""
        job = self.job()
        for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
            for index in range(replica["replicas"]):
                self._make_replica(job, role.lower(), index, replica)
        self.tell("Created", "Running")
        return job

    def wait_for_end(self) -> None:
        """Wait until a pod has failed, or all have succeeded."""
        self.wait_for(lambda phases: "Failed" in phases or {*phases} <= {"Succeeded"})

    def tell(self, *conditions: str) -> None:
        """Write the job's status with these conditions as true."""
        instant = "2026-11-22T00:00:00Z"
        found = [
            {"type": each, "status": "True", "reason": f"PyTorchJob{each}", "lastTransitionTime": instant}
            for each in conditions
        ]
        self.write({"conditions": found, "startTime": instant})

    def _make_replica(self, job: Manifest, role: str, index: int, replica: Manifest) -> None:
        name, template = job["metadata"]["name"], replica["template"]
        labels = {
            **template["metadata"]["labels"],
            "group-name": "kubeflow.org",
            "controller-name": "pytorch-operator",
            "job-name": name,
            "pytorch-replica-type": role,
            "pytorch-replica-index": str(index),
        }
        spec = {**template["spec"], "restartPolicy": replica["restartPolicy"]}
        self.make_pod(job, f"{name}-{role}-{index}", labels, spec)


async def test_a_job_has_the_old_operators_fields_and_is_followed_to_its_end(lab: Lab) -> None:
    """The run policy's fields are at the top level of its spec; pods are found by the operator's labels."""
    submission = await lab.submit("echo trained; echo no such class; exit 3", backoff_limit=3)
    operator = ScriptedOldOperator(lab.cluster, submission.ref)

    following = asyncio.create_task(lab.follow(submission))
    made = await asyncio.to_thread(operator.make_pods)
    await asyncio.to_thread(operator.wait_for_end)
    await asyncio.to_thread(operator.tell, "Created", "Failed")
    conclusion = await following

    policy = {"backoffLimit", "cleanPodPolicy", "ttlSecondsAfterFinished"}
    assert made["spec"].keys() == {"pytorchReplicaSpecs", *policy}
    assert (conclusion.outcome, lab.lines[0]) == (Outcome.FAILED, "trained")
    assert conclusion.diagnosis is not None
    assert "exited with code 3" in conclusion.diagnosis.summary
    assert "no such class" in conclusion.diagnosis.log_tail
    seen = await look(lab.backend, lab.namespace, submission.ref.name)
    assert sorted(pod["metadata"]["name"] for pod in seen.pods) == [
        f"{submission.ref.name}-{replica}" for replica in ("master-0", "worker-0")
    ]
