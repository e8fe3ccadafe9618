"""A real queue: Kueue suspends a job for which there is no quota, says why, and lets it run when there is."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
import yaml

from cluster.kueue import QUEUE, ensure_kueue, ensure_queue
from cluster.tenants import service_account
from cluster.training_image import ensure_digits
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from installed import ROOT
from ptjob_provider.core.conclusion import Outcome
from ptjob_provider.core.diagnosis import Cause, Limits
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.runner import follow
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.submission import ensure_submitted
from rbac import rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.boot import Cluster
    from ptjob_provider.core.submission import Submission

ROLE = ROOT / "docs" / "kubernetes-queue-role.yaml"
WHY = "insufficient unused quota for cpu in flavor default"


@pytest.fixture(scope="module")
def queues(own_cluster: Cluster, tell: Callable[[str], None]) -> Cluster:
    """Have a cluster with Kueue."""
    ensure_kueue(own_cluster, tell)
    return own_cluster


@pytest.fixture
def backend(queues: Cluster, own_namespace: str) -> KubernetesBackend:
    """Return a namespace with a queue for one core, reached with what the documentation grants."""
    ensure_queue(queues, own_namespace, cpu="1")
    may = [*rules(), *yaml.safe_load(ROLE.read_text())["rules"]]
    return KubernetesBackend(config_of(service_account(queues, own_namespace, may)))


async def submit(backend: KubernetesBackend, namespace: str, name: str, image: str, cpu: str) -> Submission:
    """Submit a job to the queue."""
    program = ["python3", "-c", "import time; time.sleep(8)"]
    job = TrainingJob.parse(
        name=name, namespace=namespace, image=image, command=program, cpu=cpu, memory="256Mi", queue_name=QUEUE
    )
    owner = Owner(instance="test", ids={"task_id": name}, labels={})
    return await ensure_submitted(backend, job, owner=owner, store=MemoryStore())


async def test_a_job_waits_in_its_queue_with_its_reason_and_then_runs(
    queues: Cluster, own_namespace: str, backend: KubernetesBackend, tell: Callable[[str], None]
) -> None:
    """It is suspended by Kueue, which is no end; when the first job is over it succeeds."""
    image = ensure_digits(queues, tell)
    sink = ListSink()
    async with asyncio.timeout(PATIENCE):
        first = await submit(backend, own_namespace, "first", image, "800m")
        async with aclosing(backend.watch(first.ref)) as watch:
            async for seen in watch:
                if seen.pods:
                    break
        second = await submit(backend, own_namespace, "second", image, "600m")
        ends = await asyncio.gather(
            follow(backend, first, sink=ListSink()), follow(backend, second, sink=sink, limits=Limits())
        )

    assert [end.outcome for end in ends] == [Outcome.SUCCEEDED] * 2, ends
    assert any("suspended by its queue" in text and WHY in text for text in sink.notices), sink.notices


async def test_a_job_that_its_queue_never_lets_run_ends_with_the_queues_reason(
    queues: Cluster, own_namespace: str, backend: KubernetesBackend, tell: Callable[[str], None]
) -> None:
    """Only where a limit is set; a retry waits again."""
    image = ensure_digits(queues, tell)
    async with asyncio.timeout(PATIENCE):
        submission = await submit(backend, own_namespace, "large", image, "3")
        end = await follow(backend, submission, sink=ListSink(), limits=Limits(queue_timeout=20))

    assert end.diagnosis is not None
    assert (end.diagnosis.cause, end.diagnosis.retryable) == (Cause.QUEUED, True)
    assert "its queue says: " in end.diagnosis.summary
    assert "quota for cpu" in end.diagnosis.summary
