"""Tests of a job's priority, as read from the objects of each kind and from its pods."""

from __future__ import annotations

from typing import Any

from fakes import ScriptedBackend
from ptjob_provider.core import kinds
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.run.snapshot import look
from rows import each_row

META = {"name": "digits", "namespace": "team", "uid": "u", "creationTimestamp": "2026-11-20T10:00:00Z"}
POD: dict[str, Any] = {"spec": {"containers": [{"name": "pytorch"}]}}
HIGH: dict[str, Any] = {"spec": {"containers": [{"name": "pytorch"}], "priorityClassName": "high"}}


def pytorchjob(template: dict[str, Any], **policy: Any) -> dict[str, Any]:
    spec = {"runPolicy": policy, "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": META, "spec": spec}


def t9k(template: dict[str, Any], **scheduler: Any) -> dict[str, Any]:
    spec = {"scheduler": scheduler, "replicaSpecs": [{"type": "worker", "replicas": 1, "template": template}]}
    return {"kind": "PyTorchTrainingJob", "metadata": META, "spec": spec}


def trainjob(**pod: Any) -> dict[str, Any]:
    """Return a TrainJob that changes its runtime's pods."""
    step = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    patch = {"manager": "m", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [step]}}}}
    return {"kind": "TrainJob", "metadata": META, "spec": {"runtimeRef": {"name": "t"}, "runtimePatches": [patch]}}


@each_row(
    ("job", "priority"),
    [
        (pytorchjob(POD), ""),
        (pytorchjob(HIGH), "high"),
        (pytorchjob(POD, schedulingPolicy={"priorityClass": "gang"}), "gang"),
        (t9k(POD), ""),
        (t9k(HIGH), "high"),
        (t9k(HIGH, t9kScheduler={"queue": "q", "priority": 50}), "50"),
        (trainjob(), ""),
        (trainjob(priorityClassName="high"), "high"),
    ],
)
def test_each_kind_says_which_jobs_go_first(job: dict[str, Any], priority: str) -> None:
    assert kinds.kind_of(job).priority(job) == priority


async def test_a_class_that_only_the_pods_have_is_shown() -> None:
    """The class of a runtime, or the cluster's default."""
    job, backend = trainjob(), ScriptedBackend()
    backend.jobs["team", "digits"] = job
    pod = {"metadata": {"name": "digits-node-0-0-abcde", "uid": "p"}, "spec": {"priorityClassName": "usual"}}
    backend.worlds = [Observation(job=job, pods=[{**pod, "status": {"phase": "Running"}}])]

    snapshot = await look(backend, "team", "digits", inspect=False)

    assert snapshot.to_dict()["priority"] == "usual"
