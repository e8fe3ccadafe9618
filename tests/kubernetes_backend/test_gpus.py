"""GPUs that the node says it has: the real scheduler counts them, and says why there are too few."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.gpu import RESOURCE, gpus
from cluster.shell import wait_until
from cluster.tenants import service_account
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from ptjob_provider.core.diagnosis import Cause, Limits
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from rbac import rules

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.run.outcome import JobOutcome

TRAIN = ["python3", "-c", "import time; time.sleep(5)"]


def quota(namespace: str) -> dict[str, Any]:
    """Return a quota of four cards."""
    meta = {"name": "cards", "namespace": namespace}
    hard = {f"requests.{RESOURCE}": "4"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}


def counts_none(cluster: Cluster, namespace: str) -> bool:
    """Tell whether the quota counts, and no card is taken."""
    status: Manifest = cluster.kubectl.get("resourcequota", "cards", namespace=namespace).get("status") or {}
    return status.get("used") == {f"requests.{RESOURCE}": "0"}


async def run(cluster: Cluster, namespace: str, name: str, **fields: Any) -> tuple[JobOutcome, ListSink]:
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
    """Two of two are placed and counted as used; of three the scheduler's own words say that one is missing.

    Where its namespace may only have so many, the quota and its size are named.
    """
    with gpus(cluster, 2):
        fits, _ = await run(cluster, namespace, "fits", image=digits_image, workers=2, gpus=1)
        cluster.kubectl.apply(quota(namespace))
        wait_until("the quota to count", partial(counts_none, cluster, namespace), timeout=PATIENCE)
        (wants, sink), (may_not, told) = await asyncio.gather(
            run(cluster, namespace, "wants", image=digits_image, gpus=3),
            run(cluster, namespace, "may-not", image=digits_image, gpus=5),
        )

    assert fits.outcome is Outcome.SUCCEEDED, fits
    assert fits.result is not None
    assert fits.result["gpu_seconds"] == 2 * fits.result["run_seconds"] > 0
    assert wants.diagnosis is not None
    assert (wants.diagnosis.cause, wants.diagnosis.retryable) == (Cause.UNSCHEDULABLE, True)
    assert f"Insufficient {RESOURCE}" in wants.diagnosis.summary
    assert any(f"Insufficient {RESOURCE}" in text for text in sink.notices)
    assert may_not.diagnosis is not None
    assert (may_not.diagnosis.cause, may_not.diagnosis.retryable) == (Cause.QUOTA, False)
    for text in (may_not.diagnosis.summary, "\n".join(told.notices)):
        assert f"the quota cards allows requests.{RESOURCE}=4 in all, less than the 5 requested at once" in text
