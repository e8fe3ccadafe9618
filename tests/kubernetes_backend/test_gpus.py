"""Tests of GPUs that the node reports: the real scheduler counts them, and says when there are too few."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.gpu import RESOURCE, gpus
from cluster.shell import wait_until
from cluster_world import PATIENCE
from kubernetes_backend.finished import followed
from ptjob_provider.core.diagnosis import Cause, Limits
from ptjob_provider.core.run.outcome import Outcome

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.identity import Manifest

LIMITS = Limits(queue_timeout=20)
COMMAND = ["python3", "-c", "import time; time.sleep(5)"]


def quota(namespace: str) -> dict[str, Any]:
    """Return a quota of four GPUs."""
    meta = {"name": "cards", "namespace": namespace}
    hard = {f"requests.{RESOURCE}": "4"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}


def counts_none(cluster: Cluster, namespace: str) -> bool:
    """Return whether the quota is active and no GPU is used."""
    status: Manifest = cluster.kubectl.get("resourcequota", "cards", namespace=namespace).get("status") or {}
    return status.get("used") == {f"requests.{RESOURCE}": "0"}


async def test_a_job_gets_its_gpus_and_one_that_wants_more_says_why_it_waits(
    cluster: Cluster, namespace: str, digits_image: str
) -> None:
    """Two of two are allocated and counted; for three, the scheduler's message says that they are insufficient.

    Where a quota limits the namespace, the message names it and its size.
    """
    asked: dict[str, Any] = {"image": digits_image, "command": COMMAND, "limits": LIMITS}
    with gpus(cluster, 2):
        fits, _ = await followed(cluster, namespace, "fits", **asked, workers=2, gpus=1)
        cluster.kubectl.apply(quota(namespace))
        wait_until("the quota to count", partial(counts_none, cluster, namespace), timeout=PATIENCE)
        (wants, sink), (may_not, found) = await asyncio.gather(
            followed(cluster, namespace, "wants", **asked, gpus=3),
            followed(cluster, namespace, "may-not", **asked, gpus=5),
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
    for text in (may_not.diagnosis.summary, "\n".join(found.notices)):
        assert f"the quota cards allows requests.{RESOURCE}=4 in all, less than the 5 requested at once" in text
