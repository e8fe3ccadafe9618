"""Tests of an elastic job on the real operator: its environment, its autoscaler, and a pod that joins later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cluster.gpu import gpus
from cluster.images import INIT_IMAGE
from cluster.shell import until
from cluster.tenants import service_account
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.snapshot import look
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from rbac import rules

if TYPE_CHECKING:
    from cluster.boot import Cluster

OWNER = Owner(instance="test", ids={"task_id": "elastic"}, labels={})
GO = "/tmp/go"  # noqa: S108 - in a pod
TRAINS = f"""
echo "$PET_NNODES pods meet by $PET_RDZV_BACKEND at $PET_RDZV_ENDPOINT, $PET_MAX_RESTARTS restarts"
until [ -e {GO} ]; do sleep 0.2; done
"""
USE = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
METRICS = [{"type": "Resource", "resource": USE}]


def manifest(namespace: str) -> dict[str, Any]:
    """Return a job with metrics for its autoscaler, for which there is no typed field."""
    container = {"name": "pytorch", "image": INIT_IMAGE, "command": ["sh", "-c", TRAINS]}
    workers = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"elasticPolicy": {"metrics": METRICS}, "pytorchReplicaSpecs": {"Worker": workers}}
    meta = {"name": "elastic", "namespace": namespace}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}


async def test_an_elastic_job_grows_while_it_is_followed(cluster: Cluster, namespace: str) -> None:
    """The operator's autoscaler keeps to the job's range; the pod that joins is counted, and ends with the job."""
    backend = KubernetesBackend(config_of(service_account(cluster, namespace, rules())))
    policy = {"min_replicas": 1, "max_replicas": 3, "max_restarts": 2}
    asked = {"elastic_policy": policy, "gpus": 1, "cpu": "50m", "memory": "32Mi", "termination_grace_period_seconds": 1}
    job = TrainingJob.parse(manifest=manifest(namespace), namespace=namespace, workers=1, **asked)
    submission = await ensure_submitted(backend, job, owner=OWNER, store=MemoryStore())
    name, there, sink = submission.ref.name, ("--namespace", namespace), ListSink()

    def runs(replica: str) -> bool:
        pods = cluster.kubectl.list("pods", namespace=namespace)
        return f"{name}-{replica}" in [
            pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"
        ]

    with gpus(cluster, 2):
        following = asyncio.create_task(follow(backend, submission, sink=sink))
        await asyncio.to_thread(until, "the first pod", lambda: runs("worker-0"), timeout=PATIENCE)
        scaler = await asyncio.to_thread(cluster.kubectl.get, "hpa", name, namespace=namespace)
        await asyncio.to_thread(cluster.kubectl, "scale", "pytorchjob", name, "--replicas=2", *there)
        await asyncio.to_thread(until, "a second one", lambda: runs("worker-1"), timeout=PATIENCE)
        seen = await look(backend, namespace, name)
        await asyncio.to_thread(cluster.kubectl.let_end, f"{name}-worker-0", "touch", GO, namespace=namespace)
        conclusion = await asyncio.wait_for(following, PATIENCE)

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert conclusion.result is not None
    assert conclusion.result["gpu_seconds"] == 2 * conclusion.result["run_seconds"] > 0
    assert sink.lines == [f"1:3 pods meet by c10d at {name}-worker-0:23456, 2 restarts"]
    assert sorted(seen.record.running) == [f"{name}-worker-0", f"{name}-worker-1"]
    wanted = {"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS}
    assert {part: scaler["spec"][part] for part in wanted} == wanted
    assert scaler["spec"]["scaleTargetRef"]["name"] == name
    until("the one that joined to end", lambda: not runs("worker-1"), timeout=PATIENCE)
