"""Tests of crashes while a job is followed: of the API server, the kubelet, a pod, and a node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from cluster.images import INIT_IMAGE
from cluster.layout import NODE
from cluster.shell import until
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from kubernetes_backend.nodes import LEAVES_SOON, lose_node
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import FollowOptions, follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.session import Session
from ptjob_provider.core.run.submit import Submission, ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.on_finish import OnFinishAction
from recorded import OWNER

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.boot import Cluster
    from ptjob_provider.core.run.outcome import JobOutcome

LINES = 60
LONG = 150
COUNT = "i=0; while [ $i -lt {lines} ]; do echo line $i; i=$((i+1)); sleep 0.5; done"
NUMBERED = [f"line {number}" for number in range(LINES)]
ALL = [f"line {number}" for number in range(LONG)]


async def counting(backend: KubernetesBackend, namespace: str, *, lines: int = LINES) -> Submission:
    """Submit a job that writes this many numbered lines, two per second."""
    command = ["sh", "-c", COUNT.format(lines=lines)]
    job = TrainingJob.parse(name="count", namespace=namespace, image=INIT_IMAGE, command=command)
    return await ensure_submitted(backend, job, owner=OWNER, store=MemoryStore())


async def followed(
    backend: KubernetesBackend, submission: Submission, sink: ListSink, *, then: Callable[[], None], after: str
) -> JobOutcome:
    """Follow the job to its end; call `then` in a thread once the line has come."""
    async with asyncio.timeout(PATIENCE):
        following = asyncio.create_task(follow(backend, submission, sink=sink))
        while after not in sink.lines and not following.done():  # noqa: ASYNC110 - the sink has no event for it
            await asyncio.sleep(0.1)
        await asyncio.to_thread(then)
        return await following


@pytest.mark.parametrize("component", ["kube-apiserver", "kubelet"])
async def test_a_component_that_is_killed_costs_neither_the_verdict_nor_a_line(
    own_cluster: Cluster, own_namespace: str, component: str
) -> None:
    """Watches and the log stream break, and are reopened where they were."""
    backend, sink = KubernetesBackend(config_of(own_cluster.layout.kubeconfig)), ListSink()
    submission = await counting(backend, own_namespace)

    conclusion = await followed(backend, submission, sink, then=lambda: own_cluster.restart(component), after="line 5")

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == NUMBERED
    jobs = await backend.list("PyTorchJob", own_namespace, {})
    assert [JobRef.of(job) for job in jobs] == [submission.ref]


async def test_a_notice_says_that_lines_were_lost_with_a_pod(own_cluster: Cluster, own_namespace: str) -> None:
    """The log is deleted with the pod before it is read: a notice names the last line's time; no line is made up."""
    backend, sink = KubernetesBackend(config_of(own_cluster.layout.kubeconfig)), ListSink()
    submission = await counting(backend, own_namespace, lines=LONG)  # it outlives its pod, on a busy machine too
    delete = ("delete", "pod", submission.rank0, "--namespace", own_namespace, "--force", "--grace-period=0")

    def lose() -> None:
        own_cluster.kill("kubelet")
        own_cluster.kubectl(*delete)
        own_cluster.start("kubelet")
        own_cluster.wait_for("kubelet")

    await followed(backend, submission, sink, then=lose, after="line 5")

    loss = next(place for place, line in enumerate(sink.lines) if "was lost with it" in line)
    again = sink.lines[loss + 1 :]  # the operator fails the job, or recreates the pod if it noticed sooner
    assert "its log is not on its node any more; what it wrote after" in sink.lines[loss]
    assert sink.lines[:loss] == ALL[:loss]
    assert again == ALL[: len(again)]


async def test_a_try_trains_again_after_its_node_was_lost(own_cluster: Cluster, own_namespace: str) -> None:
    """The pods had to leave a node whose kubelet was silent; the next attempt waits until the node has ended them."""
    sink, small = ListSink(), {"cpu": "50m", "termination_grace_period_seconds": 1, "tolerations": LEAVES_SOON}
    command = ["sh", "-c", '[ "$PTJOB_ATTEMPT" = 2 ] || sleep 900']
    job = TrainingJob.parse(name="lost", namespace=own_namespace, image=INIT_IMAGE, command=command, workers=2, **small)
    session = Session(
        backend=KubernetesBackend(config_of(own_cluster.layout.kubeconfig)),
        owner=OWNER,
        store=MemoryStore(),
        sink=sink,
        on_finish_action=OnFinishAction.KEEP_JOB,
        api_error_timeout=PATIENCE,
        tell=sink.notice,
        how_to_follow=FollowOptions(limits=Limits(max_preemptions=1)),
    )
    async with asyncio.timeout(PATIENCE):
        trying = asyncio.create_task(session.until_end(job))
        await asyncio.to_thread(
            until, "both pods to run", lambda: both_run(own_cluster, own_namespace), timeout=PATIENCE
        )
        await asyncio.to_thread(lose_node, own_cluster, own_namespace)
        _, outcome = await trying

    assert (outcome.outcome, [each["cause"] for each in outcome.preemptions]) == (Outcome.SUCCEEDED, ["node_lost"])
    assert [each["node"] for each in outcome.preemptions] == [NODE]
    assert any("lost its node (DeletionByTaintManager)" in each for each in sink.notices), sink.notices


def both_run(cluster: Cluster, namespace: str) -> bool:
    pods = cluster.kubectl.list("pods", namespace=namespace)
    return [pod["status"].get("phase") for pod in pods] == ["Running", "Running"]
