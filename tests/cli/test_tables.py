"""What `ptjob get` shows of a job's replicas, whatever their pods are called. The back-end is a script."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fakes import ScriptedBackend, finished
from ptjob_provider.cli import tables
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.recorder import Record, Termination
from ptjob_provider.core.snapshot import look


def pod(index: int, phase: str) -> dict[str, Any]:
    """Return a pod of the TrainJob, as JobSet labels and names it."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "digits",
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    meta = {
        "name": f"digits-node-0-{index}-x7kqp",
        "namespace": "team",
        "uid": f"p-{index}",
        "labels": labels,
        "creationTimestamp": "2026-11-20T10:01:00Z",
    }
    return {"metadata": meta, "spec": {"nodeName": f"gpu-{index}", "containers": []}, "status": {"phase": phase}}


async def test_each_replica_is_shown_with_its_node_and_the_job_with_its_kind() -> None:
    """One without a pod is gone, and is nowhere."""
    backend = ScriptedBackend()
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "digits", "namespace": "team", "uid": "u", "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 3}},
        "status": {"jobsStatus": [{"name": "node", "active": 2, "failed": 0}]},
    }
    backend.jobs["team", "digits"] = job
    backend.worlds = [Observation(job=job, pods=[pod(0, "Running"), pod(1, "Pending")])]

    snapshot = await look(backend, "team", "digits", inspect=False, now=datetime(2026, 11, 20, 10, 10, tzinfo=UTC))

    shown = [[str(cell) for cell in column.cells] for column in tables.replicas(snapshot).columns]
    assert shown[1:5] == [
        ["digits-node-0-0", "digits-node-0-1", "digits-node-0-2"],
        ["Running", "Pending", "gone"],
        ["9m0s", "9m0s", ""],
        ["gpu-0", "gpu-1", ""],
    ]
    fetched = replace(snapshot, record=replace(snapshot.record, revisions=("digits-node-0-0 0a1b2c",)))
    names, texts = ([str(cell) for cell in column.cells] for column in tables.job(fetched).columns)
    told = dict(zip(names, texts, strict=True))
    assert (told["kind"], told["code"], told["counted"]) == ("TrainJob", "0a1b2c", "node 2 active")


@pytest.mark.parametrize(
    ("condition", "shown"),
    [("Succeeded", "digits-worker-0 (rank 1) exited with code 1: its last line is “no data”"), ("Failed", None)],
)
async def test_a_replica_that_failed_in_a_job_that_succeeded_is_shown(condition: str, shown: str | None) -> None:
    """Of a job that failed the diagnosis says more."""
    backend = ScriptedBackend()
    role = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch"}]}}}
    meta = {"name": "digits", "namespace": "team", "uid": "u", "creationTimestamp": "2026-11-20T10:00:00Z"}
    spec = {"pytorchReplicaSpecs": {"Master": role, "Worker": role}}
    job = finished({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}, condition)
    end = Termination(replica="digits-worker-0", key="k", container="pytorch", exit_code=1, message="no data")
    backend.jobs["team", "digits"] = job
    backend.worlds = [Observation(job=job)]

    snapshot = await look(backend, "team", "digits", inspect=False)
    snapshot = replace(snapshot, record=Record(terminations=(end,)))

    names, texts = ([str(cell) for cell in column.cells] for column in tables.job(snapshot).columns)
    assert dict(zip(names, texts, strict=True)).get("but") == shown
