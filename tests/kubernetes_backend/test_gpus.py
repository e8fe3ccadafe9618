"""GPUs that the node says it has: the real scheduler counts them, and says why there are too few."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cluster.gpu import RESOURCE, gpus
from cluster.tenants import service_account
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from ptjob_provider.core.conclusion import Outcome
from ptjob_provider.core.diagnosis import Cause, Limits
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.runner import follow
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.submission import ensure_submitted
from rbac import rules

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.conclusion import Conclusion

TRAIN = ["python3", "-c", "import time; time.sleep(5)"]


async def run(cluster: Cluster, namespace: str, name: str, **fields: Any) -> tuple[Conclusion, ListSink]:
    """Submit a job and follow it to its end."""
    backend = KubernetesBackend(config_of(service_account(cluster, namespace, rules())))
    owner, sink = Owner(instance="test", ids={"task_id": name}, labels={}), ListSink()
    job = TrainingJob.parse(name=name, namespace=namespace, command=TRAIN, **fields)
    async with asyncio.timeout(PATIENCE):
        submission = await ensure_submitted(backend, job, owner=owner, store=MemoryStore())
        limits = Limits(queue_timeout=20)
        return await follow(backend, submission, sink=sink, limits=limits), sink


async def test_a_job_gets_its_gpus_and_one_that_wants_more_is_told_why(
    cluster: Cluster, namespace: str, digits_image: str
) -> None:
    """Two of two are placed and counted as used; of three the scheduler's own words say that one is missing."""
    with gpus(cluster, 2):
        fits, _ = await run(cluster, namespace, "fits", image=digits_image, workers=2, gpus=1)
        wants, sink = await run(cluster, namespace, "wants", image=digits_image, gpus=3)

    assert fits.outcome is Outcome.SUCCEEDED, fits
    assert fits.result is not None
    assert fits.result["gpu_seconds"] == 2 * fits.result["run_seconds"] > 0
    assert wants.diagnosis is not None
    assert (wants.diagnosis.cause, wants.diagnosis.retryable) == (Cause.UNSCHEDULABLE, True)
    assert f"Insufficient {RESOURCE}" in wants.diagnosis.summary
    assert any(f"Insufficient {RESOURCE}" in text for text in sink.notices)
