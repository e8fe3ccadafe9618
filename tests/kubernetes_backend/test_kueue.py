"""A real queue: Kueue suspends a job for which there is no quota, says why, and lets it run when there is."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
import yaml

from cluster import trainer
from cluster.images import INIT_IMAGE
from cluster.kueue import QUEUE, ensure_kueue, ensure_queue
from cluster.tenants import service_account
from cluster_world import GRACE, PATIENCE, config_of
from fakes import ListSink, MemoryStore
from installed import ROOT
from ptjob_provider.core import kinds
from ptjob_provider.core.conclusion import Outcome
from ptjob_provider.core.diagnosis import Cause, Limits
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.runner import follow
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.status import JobPhase
from ptjob_provider.core.submission import ensure_submitted
from rbac import rules_of_kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.boot import Cluster
    from ptjob_provider.core.submission import Submission

ROLE = ROOT / "docs" / "kubernetes-queue-role.yaml"
WHY = "insufficient unused quota for cpu in flavor default"
TRAINS = "echo trained; until [ -e /end ]; do sleep 0.2; done"
END = ("touch", "/end")


class QueueSink(ListSink):
    """Collects what a task's log would show, and knows when the queue's reason was among it."""

    def __init__(self) -> None:
        super().__init__()
        self.told = asyncio.Event()

    def notice(self, text: str) -> None:
        """Keep a sentence about the job."""
        super().notice(text)
        if WHY in text:
            self.told.set()


@pytest.fixture(scope="module")
def queues(own_cluster: Cluster, tell: Callable[[str], None]) -> Cluster:
    """Have a cluster with Kueue, and with every kind of job that it suspends."""
    trainer.install(own_cluster)
    ensure_kueue(own_cluster, tell)
    return own_cluster


@pytest.fixture
def backend(queues: Cluster, own_namespace: str) -> KubernetesBackend:
    """Return a namespace with a queue for a third of a core, reached with what the documentation grants."""
    ensure_queue(queues, own_namespace, cpu="300m")
    may = [*rules_of_kinds(), *yaml.safe_load(ROLE.read_text())["rules"]]
    return KubernetesBackend(config_of(service_account(queues, own_namespace, may)))


async def submit(
    backend: KubernetesBackend, namespace: str, name: str, cpu: str, *, kind: str = "PyTorchJob"
) -> Submission:
    """Submit a job to the queue that runs until it is let end."""
    what = {"name": name, "namespace": namespace, "kind": kind, "image": INIT_IMAGE, "command": ["sh", "-c", TRAINS]}
    needs = {"workers": 1, "cpu": cpu, "memory": "64Mi", "termination_grace_period_seconds": GRACE}
    job = TrainingJob.parse(**what, **needs, queue_name=QUEUE)
    owner = Owner(instance="test", ids={"task_id": name}, labels={})
    return await ensure_submitted(backend, job, owner=owner, store=MemoryStore())


async def running(backend: KubernetesBackend, submission: Submission) -> str:
    """Return the name of a job's pod once both are seen to run; it is as it was asked for, whoever resumed the job."""
    async with aclosing(backend.watch(submission.ref)) as watch:
        async for seen in watch:
            assert seen.job is not None
            pods = [pod for pod in seen.pods if pod["status"].get("phase") == "Running"]
            if pods and kinds.read_status(seen.job).phase is JobPhase.RUNNING:
                assert pods[0]["spec"]["terminationGracePeriodSeconds"] == GRACE
                return str(pods[0]["metadata"]["name"])
    raise AssertionError("a watch goes on until the job is gone")


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob"])
async def test_a_job_waits_in_its_queue_with_its_reason_and_then_runs(
    queues: Cluster, own_namespace: str, backend: KubernetesBackend, kind: str
) -> None:
    """It is suspended by Kueue, which is no end; when the first job is over it runs like any other, and succeeds."""
    sink = QueueSink()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        first = await submit(backend, own_namespace, "first", "200m", kind=kind)
        earlier = tasks.create_task(follow(backend, first, sink=ListSink()))
        pod = await running(backend, first)
        second = await submit(backend, own_namespace, "second", "150m", kind=kind)
        later = tasks.create_task(follow(backend, second, sink=sink, limits=Limits()))
        await sink.told.wait()
        before = len(sink.notices)
        await asyncio.to_thread(queues.kubectl, "exec", pod, "--namespace", own_namespace, "--", *END)
        pod = await running(backend, second)
        await asyncio.to_thread(queues.kubectl, "exec", pod, "--namespace", own_namespace, "--", *END)

    ends = earlier.result(), later.result()
    assert [end.outcome for end in ends] == [Outcome.SUCCEEDED] * 2, ends
    assert any("suspended by its queue" in text and WHY in text for text in sink.notices[:before]), sink.notices
    assert not any("suspended" in text for text in sink.notices[before:]), sink.notices
    assert sink.lines == ["trained"]
    assert ends[1].status.started_at is not None


async def test_a_job_that_its_queue_never_lets_run_ends_with_the_queues_reason(
    own_namespace: str, backend: KubernetesBackend
) -> None:
    """Only where a limit is set; a retry waits again."""
    async with asyncio.timeout(PATIENCE):
        submission = await submit(backend, own_namespace, "large", "3")
        end = await follow(backend, submission, sink=ListSink(), limits=Limits(queue_timeout=20))

    assert end.diagnosis is not None
    assert (end.diagnosis.cause, end.diagnosis.retryable) == (Cause.QUEUED, True)
    assert "its queue says: " in end.diagnosis.summary
    assert "quota for cpu" in end.diagnosis.summary
