"""Test with Kueue: it suspends a job without quota, says why, and resumes it when there is quota."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from cluster import gpu, trainer
from cluster.images import INIT_IMAGE
from cluster.kueue import FLAVOR_LABELS, QUEUE, ensure_kueue, ensure_queue
from cluster_world import GRACE, PATIENCE, config_of
from fakes import ListSink, MemoryStore
from kubernetes_backend.terminal import Terminal, person
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.status import JobPhase
from rbac import rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.boot import Cluster
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.run.submit import Submission

WHY = f"insufficient unused quota for {gpu.RESOURCE} in flavor default"
TRAINS = "echo trained; until [ -e /end ]; do sleep 0.2; done"
END = ("touch", "/end")


class QueueSink(ListSink):
    """Collects a task's log, and knows whether the queue's reason is in it."""

    def __init__(self) -> None:
        super().__init__()
        self._told = asyncio.Event()

    def notice(self, text: str) -> None:
        super().notice(text)
        if WHY in text:
            self._told.set()

    async def told_so_far(self) -> list[str]:
        """Return the messages up to the queue's reason, once that is there."""
        await self._told.wait()
        return [*self.notices]


@pytest.fixture(scope="module")
def queues(own_cluster: Cluster, tell: Callable[[str], None]) -> Iterator[Cluster]:
    """Return a cluster with Kueue, all kinds of jobs that it suspends, and more GPUs than a queue may use."""
    trainer.apply(own_cluster)
    ensure_kueue(own_cluster, tell)
    trainer.wait(own_cluster)
    with gpu.gpus(own_cluster, 2):
        yield own_cluster


@pytest.fixture
def terminal(queues: Cluster, own_namespace: str) -> Terminal:
    """Return the terminal of a user with the documented rights, in a namespace with a queue for one GPU."""
    ensure_queue(queues, own_namespace, cpu="300m", gpus=1)
    return person(queues, own_namespace, rules_of("kinds", "queue"))


@pytest.fixture
def backend(terminal: Terminal) -> KubernetesBackend:
    """Return a back-end with the same user's rights."""
    return KubernetesBackend(config_of(terminal.kubeconfig))


async def submit(
    backend: KubernetesBackend, namespace: str, name: str, kind: str = "PyTorchJob", **needs: object
) -> Submission:
    """Submit a job to the queue; it runs until `let_end`."""
    what = {"name": name, "namespace": namespace, "kind": kind, "image": INIT_IMAGE, "command": ["sh", "-c", TRAINS]}
    needs = {"workers": 1, "cpu": "100m", "memory": "64Mi", "termination_grace_period_seconds": GRACE, **needs}
    job = TrainingJob.parse(**what, **needs, queue_name=QUEUE)
    owner = Owner(instance="test", ids={"task_id": name}, labels={})
    return await ensure_submitted(backend, job, owner=owner, store=MemoryStore())


async def running(backend: KubernetesBackend, submission: Submission) -> str:
    """Return the name of a job's pod once both run; check that it has the queue's and the user's settings."""
    async with aclosing(backend.watch(submission.ref)) as watch:
        async for seen in watch:
            assert seen.job is not None
            pods = [pod for pod in seen.pods if pod["status"].get("phase") == "Running"]
            if pods and kinds.read_status(seen.job).phase is JobPhase.RUNNING:
                assert pods[0]["spec"]["nodeSelector"] == FLAVOR_LABELS
                assert pods[0]["spec"]["terminationGracePeriodSeconds"] == GRACE
                return str(pods[0]["metadata"]["name"])
    raise AssertionError("a watch goes on until the job is gone")


def submit_copy(queues: Cluster, ref: JobRef) -> None:
    """Submit a copy of the job's stored manifest as a new job, as a dry run."""
    found = queues.kubectl.get(ref.kind, ref.name, namespace=ref.namespace)
    job = TrainingJob.parse(name="copy", manifest=found)
    copy = kinds.named(ref.kind).render(job, owner=Owner(instance="test", ids={}, labels={}), attempt=1).manifest
    queues.kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(copy))


async def let_end(queues: Cluster, backend: KubernetesBackend, submission: Submission) -> Submission:
    """Let a job end once it runs; return the result of submitting it again."""
    ref = submission.ref
    pod = await running(backend, submission)
    again = await submit(backend, ref.namespace, ref.name.rpartition("-")[0], ref.kind, gpus=1)
    await asyncio.to_thread(queues.kubectl.let_end, pod, *END, namespace=ref.namespace)
    return again


def looked_at(terminal: Terminal, name: str) -> list[Any]:
    """Return the output of `get` and `events` for a job."""
    return [json.loads(terminal.ptjob(verb, name, "-o", "json").stdout) for verb in ("get", "events")]


async def test_a_job_waits_in_its_queue_with_its_reason_and_then_runs(
    queues: Cluster, own_namespace: str, backend: KubernetesBackend, terminal: Terminal
) -> None:
    """Kueue suspends the job, which is no end; when its turn comes, it runs like any other, and succeeds.

    `get` and `events` say why it waits. With the changes of Kueue and its webhook it is still the same job, and its
    manifest can be submitted again.
    """
    sinks = {kind: QueueSink() for kind in ("PyTorchJob", "TrainJob")}
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:  # three pods start one after the other
        first = await submit(backend, own_namespace, "first", gpus=1)
        await running(backend, first)
        waiting = {kind: await submit(backend, own_namespace, kind.lower(), kind, gpus=1) for kind in sinks}
        jobs = [(first, ListSink()), *((waiting[kind], sinks[kind]) for kind in sinks)]
        ends = [tasks.create_task(follow(backend, job, sink=sink, limits=Limits())) for job, sink in jobs]
        shown_by_sink = {kind: await sink.told_so_far() for kind, sink in sinks.items()}
        seen = {kind: await asyncio.to_thread(looked_at, terminal, job.ref.name) for kind, job in waiting.items()}
        found = [tasks.create_task(let_end(queues, backend, job)) for job, _ in jobs]

    assert [end.result().outcome for end in ends] == [Outcome.SUCCEEDED] * 3, ends
    for kind, sink in sinks.items():
        later = sink.notices[len(shown_by_sink[kind]) :]
        assert any("suspended by its queue" in text and WHY in text for text in shown_by_sink[kind]), sink.notices
        assert not any("suspended" in text for text in later), sink.notices
        assert sink.lines == ["trained"]
        shown, events = seen[kind]
        assert shown["waiting"].startswith("suspended by its queue: ")
        assert WHY in shown["waiting"]
        assert any("workload/" in each["object"] and WHY in each["message"] and each["at"] for each in events), events
    assert all(end.result().status.started_at for end in ends)
    for again, (job, _) in zip(found, jobs, strict=True):
        adopted = again.result()
        assert adopted == dataclasses.replace(job, adopted=True, adopted_by=("", adopted.adopted_by[-1]))
    for job in waiting.values():
        assert [*job.gpus_of.values()] == [1]
        submit_copy(queues, job.ref)
