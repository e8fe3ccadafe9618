"""What dies while a job is followed - a server, a node's agent, a pod, the follower - and what is said and kept."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from cluster.images import INIT_IMAGE
from cluster_world import PATIENCE, Tenant, config_of
from fakes import ListSink, MemoryStore
from ptjob_provider.core.identity import JobRef, Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import Submission, conclude_attempt, ensure_submitted
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.boot import Cluster
    from ptjob_provider.core.run.outcome import JobOutcome

OWNER = Owner(instance="test", ids={"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": "-1"}, labels={})
LINES = 60
LONG = 150
COUNT = "i=0; while [ $i -lt {lines} ]; do echo line $i; i=$((i+1)); sleep 0.5; done"
NUMBERED = [f"line {number}" for number in range(LINES)]
ALL = [f"line {number}" for number in range(LONG)]


async def counting(backend: KubernetesBackend, namespace: str, *, lines: int = LINES) -> Submission:
    """Submit a job that writes so many numbered lines, two in a second."""
    command = ["sh", "-c", COUNT.format(lines=lines)]
    job = TrainingJob.parse(name="count", namespace=namespace, image=INIT_IMAGE, command=command)
    return await ensure_submitted(backend, job, owner=OWNER, store=MemoryStore())


async def followed(
    backend: KubernetesBackend, submission: Submission, sink: ListSink, *, then: Callable[[], None], after: str
) -> JobOutcome:
    """Follow the job to its end; something happens, in a thread, once a line has come."""
    async with asyncio.timeout(2 * PATIENCE):
        following = asyncio.create_task(follow(backend, submission, sink=sink))
        while after not in sink.lines and not following.done():  # noqa: ASYNC110 - the sink tells nobody
            await asyncio.sleep(0.1)
        await asyncio.to_thread(then)
        return await following


@pytest.mark.parametrize("component", ["kube-apiserver", "kubelet"])
async def test_a_component_that_is_killed_costs_neither_the_verdict_nor_a_line(
    own_cluster: Cluster, own_namespace: str, component: str
) -> None:
    """Watches and the log's stream break; they are opened again where they were."""
    backend, sink = KubernetesBackend(config_of(own_cluster.layout.kubeconfig)), ListSink()
    submission = await counting(backend, own_namespace)

    conclusion = await followed(backend, submission, sink, then=lambda: own_cluster.restart(component), after="line 5")

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == NUMBERED
    jobs = await backend.list("PyTorchJob", own_namespace, {})
    assert [JobRef.of(job) for job in jobs] == [submission.ref]


async def test_what_a_pod_took_with_it_is_said(own_cluster: Cluster, own_namespace: str) -> None:
    """Its log went with it while nobody could read it: the last line's time is told, and no line is made up."""
    backend, sink = KubernetesBackend(config_of(own_cluster.layout.kubeconfig)), ListSink()
    submission = await counting(backend, own_namespace, lines=LONG)  # it outlasts its pod, on a busy machine too
    delete = ("delete", "pod", submission.rank0, "--namespace", own_namespace, "--force", "--grace-period=0")

    def lose() -> None:
        own_cluster.kill("kubelet")
        own_cluster.kubectl(*delete)
        own_cluster.start("kubelet")
        own_cluster.wait_for("kubelet")

    await followed(backend, submission, sink, then=lose, after="line 5")

    loss = next(place for place, line in enumerate(sink.lines) if "was lost with it" in line)
    again = sink.lines[loss + 1 :]  # the operator fails the job, or makes the pod anew if it was quicker to miss it
    assert "its pod is gone; what it wrote after" in sink.lines[loss]
    assert sink.lines[:loss] == ALL[:loss]
    assert again == ALL[: len(again)]


async def test_a_follower_that_comes_after_the_end_tells_the_same(own_cluster: Cluster, own_namespace: str) -> None:
    """Its cursor says what the first one has told; the rest comes once."""
    backend, first, second = KubernetesBackend(config_of(own_cluster.layout.kubeconfig)), ListSink(), ListSink()
    submission = await counting(backend, own_namespace)
    async with asyncio.timeout(PATIENCE), aclosing(backend.logs(submission.ref, submission.rank0)) as lines:
        async for line in lines:
            first.line(line)
            if line.text == "line 20":
                break

    async with asyncio.timeout(PATIENCE):
        conclusion = await follow(backend, submission, sink=second, cursor=line.cursor)

    assert conclusion.outcome is Outcome.SUCCEEDED
    assert [*first.lines, *second.lines] == NUMBERED


async def test_rank_0_deleted_in_mid_training_is_a_failure_and_attempt_2_resumes(
    cluster: Cluster, namespace: str, digits_image: str
) -> None:
    """The operator fails the job; the next attempt is told its checkpoints and goes on at most one epoch earlier."""
    backend, store = KubernetesBackend(config_of(cluster.layout.kubeconfig)), MemoryStore()
    Tenant(cluster, namespace).claim("runs")
    first = await training(backend, namespace, digits_image, store, epochs=500)  # it does not end before its pod
    sink = ListSink()
    delete = ("delete", "pod", first.rank0, "--namespace", namespace, "--wait=false", "--grace-period=1")

    failed = await followed_to_epoch(backend, first, sink, epoch=4, then=lambda: cluster.kubectl(*delete))
    conclude_attempt(store)
    again = ListSink()
    second = await training(backend, namespace, digits_image, store, epochs=max(epochs(sink)) + 4)
    async with asyncio.timeout(PATIENCE * 2):
        done = await follow(backend, second, sink=again)

    assert failed.outcome is Outcome.FAILED
    assert failed.diagnosis is not None
    assert failed.diagnosis.replica == first.rank0
    assert failed.diagnosis.retryable
    assert (second.attempt, done.outcome) == (2, Outcome.SUCCEEDED)
    reached, began = max(epochs(sink)), min(epochs(again))
    assert reached - 1 <= began <= reached + 1
    assert await backend.pods_gone(first.ref)


async def training(
    backend: KubernetesBackend, namespace: str, image: str, store: MemoryStore, *, epochs: int
) -> Submission:
    """Submit a training of the digits with checkpoints."""
    job = TrainingJob.parse(
        name="digits",
        namespace=namespace,
        image=image,
        args=["--epochs", str(epochs)],
        workers=2,
        volumes=["runs:/runs"],
        model="pvc://runs/digits/model.pt",
        checkpoints="pvc://runs/digits/checkpoints",
    )
    return await ensure_submitted(backend, job, owner=OWNER, store=store)


async def followed_to_epoch(
    backend: KubernetesBackend, submission: Submission, sink: ListSink, *, epoch: int, then: Callable[[], str]
) -> JobOutcome:
    """Follow the training; something happens once this epoch was told."""
    async with asyncio.timeout(PATIENCE * 2):
        following = asyncio.create_task(follow(backend, submission, sink=sink))
        while max(epochs(sink), default=0) < epoch and not following.done():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
        await asyncio.to_thread(then)
        return await following


def epochs(sink: ListSink) -> list[int]:
    """Return the epochs that rank 0 has told, in their order."""
    words = [line.replace("/", " ").replace(":", " ").split() for line in sink.lines if line.startswith("epoch")]
    return [int(found[1]) for found in words]
