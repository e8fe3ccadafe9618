"""Tests of failing jobs on the real cluster: what the follower reports, and that nothing of them runs afterwards.

All of them fail at the same time, once for all tests; the texts are in `tests/data/golden`.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from cluster.tenants import namespace_in
from cluster_world import config_of
from fakes import ListSink, MemoryStore
from kubernetes_backend.failures import FAILURES
from kubernetes_backend.world import World
from ptjob_provider.core.diagnosis import Cause, Limits
from ptjob_provider.core.errors import ClusterUnavailable
from ptjob_provider.core.identity import JobRef, Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.submit import ensure_submitted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from cluster.boot import Cluster
    from cluster.kubectl import Kubectl
    from kubernetes_backend.failure import Act, Failure
    from ptjob_provider.core.backend import Observation
    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.kubernetes.config import ClusterConfig
    from ptjob_provider.core.run.submit import Submission
    from ptjob_provider.core.spec import TrainingJob

OWNER = Owner(instance="test", ids={"task_id": "train"}, labels={})
PATIENCE = 600.0
STOP_PATIENCE = 180.0
MORE_TIME = 3
"""Factor for the limits of the recordings: six jobs start at once, with other work running."""

AT_ONCE = 6
"""Number of jobs that fail at the same time on a machine with two cores, beside those that only wait for a limit."""

EXPECTED = [
    ("pod-exit-code", Cause.EXIT_CODE, "worker-0", True),
    ("pod-oomkilled", Cause.OUT_OF_MEMORY, "worker-0", False),
    ("pods-collateral-gloo", Cause.PYTHON_EXCEPTION, "worker-0", True),
    ("pod-torchrun-without-record", Cause.PYTHON_EXCEPTION, "worker-0", True),
    ("pod-start-error", Cause.PROGRAM_MISSING, "worker-0", False),
    ("pod-run-container-error", Cause.PROGRAM_MISSING, "worker-0", False),
    ("pod-image-pull-no-route", Cause.IMAGE, "worker-0", True),
    ("pod-missing-secret", Cause.CONFIG, "master-0", False),
    ("pod-init-stuck", Cause.INIT, "master-0", True),
    ("pod-crash-loop", Cause.CRASH_LOOP, "worker-0", True),
    ("pod-sidecar", Cause.SIDECAR, "master-0", False),
    ("pod-unschedulable-memory", Cause.UNSCHEDULABLE, "master-0", True),
    ("job-quota-memory", Cause.QUOTA, "worker-0", False),
    ("job-admission-refused", Cause.FORBIDDEN, "0", False),  # the operator tries the roles in any order
    ("pod-drained-slowly", Cause.EVICTED, "worker-0", True),
    ("pod-evicted-volume", Cause.EVICTED, "worker-0", False),
    ("job-deadline", Cause.DEADLINE, "master-0", False),
    ("job-backoff", Cause.EXIT_CODE, "worker-0", True),
    ("trainjob-failed-node", Cause.EXIT_CODE, "node-0-1", True),
    ("trainjob-backoff", Cause.EXIT_CODE, "node-0-1", True),
    ("trainjob-deadline", Cause.DEADLINE, "node-0-0", False),
    ("trainjob-quota", Cause.QUOTA, "node-0-1", False),
]
"""Not `pod-drained` and `pod-deleted`: a busy operator does not see such a pod end before it is gone, and makes
another, which trains on."""

NAMES = [row[0] for row in EXPECTED]
OURS = {
    *("pod-run-container-error", "pod-image-pull-no-route", "pod-missing-secret", "pod-init-stuck", "pod-crash-loop"),
    *("pod-sidecar", "pod-unschedulable-memory", "job-quota-memory", "job-admission-refused"),
    "trainjob-quota",
}
"""Jobs that do not end by themselves: a limit ends them, and they are deleted."""

pytestmark = pytest.mark.timeout(3600)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One job's end, and what was left afterwards.

    Attributes:
        ref: the job.
        conclusion: the result of following it.
        notices: the messages about it in the task's log.
        running: the pods of its namespace that still run.
    """

    ref: JobRef
    conclusion: JobOutcome
    notices: Sequence[str]
    running: Sequence[str]

    @property
    def why(self) -> Diagnosis:
        """The diagnosis of the failed job."""
        assert self.conclusion.diagnosis is not None
        return self.conclusion.diagnosis


@pytest.fixture(scope="module")
def ended(trained: Cluster, digits_image: str) -> dict[str, Ended]:
    """Let all these jobs fail; their namespaces are deleted afterwards."""
    return asyncio.run(_fail_all(trained))


async def _fail_all(cluster: Cluster) -> dict[str, Ended]:
    free = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> Ended:
        failure = FAILURES[name]
        async with contextlib.nullcontext() if failure.limits else free, asyncio.timeout(PATIENCE):
            return await _fail(cluster, name, failure)

    return dict(zip(NAMES, await asyncio.gather(*(one(name) for name in NAMES)), strict=True))


async def _fail(cluster: Cluster, name: str, failure: Failure) -> Ended:
    with contextlib.ExitStack() as stack:
        namespace = await asyncio.to_thread(stack.enter_context, namespace_in(cluster))
        await asyncio.to_thread(failure.prepare, cluster.kubectl, namespace)
        backend, sink = Followed(config_of(cluster.layout.kubeconfig)), ListSink()
        submission = await _submitted(backend, failure.training_job(namespace))
        acting = asyncio.create_task(_act(backend, submission.ref.namespace, cluster, failure.acts))
        try:
            conclusion = await follow(backend, submission, sink=sink, limits=patient(failure.limits))
        finally:
            acting.cancel()
        await _until_nothing_runs(backend, submission.ref)
        running = await asyncio.to_thread(_running, cluster.kubectl, namespace)
        return Ended(ref=submission.ref, conclusion=conclusion, notices=sink.notices, running=running)


def patient(limits: Mapping[str, float]) -> Limits:
    """Return the limits with longer timeouts; a number of restarts stays the same."""
    return Limits(**{name: MORE_TIME * limit if name.endswith("_timeout") else limit for name, limit in limits.items()})


async def _submitted(backend: KubernetesBackend, job: TrainingJob) -> Submission:
    """Submit as a task does; its retries outlast an operator that is too busy to serve its webhook."""
    store = MemoryStore()
    async with asyncio.timeout(STOP_PATIENCE):
        while True:
            try:
                return await ensure_submitted(backend, job, owner=OWNER, store=store, exact_name=True)
            except ClusterUnavailable:
                await asyncio.sleep(2)


class Followed(KubernetesBackend):
    """A back-end that also queues the observations that its one follower has processed."""

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config)
        self.taken: asyncio.Queue[Observation] = asyncio.Queue()

    async def watch(self, ref: JobRef) -> AsyncGenerator[Observation, None]:
        """Yield the job's state; a follower that requests the next one has processed this one."""
        async with contextlib.aclosing(super().watch(ref)) as watch:
            async for observation in watch:
                yield observation
                self.taken.put_nowait(observation)


async def _act(backend: Followed, namespace: str, cluster: Cluster, acts: Sequence[Act]) -> None:
    """Run the actions on the job, each after its follower has processed what triggers it."""
    world, left = World(), list(acts)
    while left:
        seen = await backend.taken.get()
        world.job, world.pods = seen.job, {pod["metadata"]["name"]: pod for pod in seen.pods}
        for act in [one for one in left if one.when(world)]:
            left.remove(act)
            await asyncio.to_thread(act.do, cluster.kubectl, namespace)


def _was_stopped(notices: Sequence[str]) -> bool:
    return any("was deleted: it would not have ended by itself" in text for text in notices)


async def _until_nothing_runs(backend: KubernetesBackend, ref: JobRef) -> None:
    async with asyncio.timeout(STOP_PATIENCE):
        while not await backend.pods_gone(ref):  # noqa: ASYNC110 - the port has no event for it
            await asyncio.sleep(0.5)


def _running(kubectl: Kubectl, namespace: str) -> list[str]:
    names = kubectl("get", "pods", "--namespace", namespace, "--field-selector=status.phase=Running", "--output=name")
    return names.split()


@pytest.mark.parametrize(("name", "cause", "replica", "retryable"), EXPECTED)
def test_a_failure_is_reported_with_its_replica_and_whether_a_retry_helps(
    ended: dict[str, Ended], name: str, cause: Cause, replica: str, *, retryable: bool
) -> None:
    why = ended[name].why

    assert (why.cause, why.retryable) == (cause, retryable)
    assert why.replica.startswith(f"{ended[name].ref.name}-")
    assert why.replica.endswith(f"-{replica}")
    assert why.resolution


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_failed_job_runs_on(ended: dict[str, Ended], name: str) -> None:
    """Neither the other replicas nor those that never started keep their resources."""
    assert ended[name].running == []


@pytest.mark.parametrize("name", NAMES)
def test_each_reason_of_a_waiting_job_is_reported_once(ended: dict[str, Ended], name: str) -> None:
    """A reason is reported once while it lasts, though the kubelet's and the scheduler's texts keep changing."""
    waits = [text for text in ended[name].notices if " waits: " in text]

    assert len(waits) == len(set(waits))
    assert len(waits) <= 3
    assert waits or name not in OURS - {"pod-run-container-error"}  # this one ends at once


@pytest.mark.parametrize("name", NAMES)
def test_a_job_that_cannot_get_on_is_ended_and_deleted(ended: dict[str, Ended], name: str) -> None:
    """The operator's own conclusions are used; where it never reaches one, a limit ends the job."""
    assert ended[name].conclusion.outcome is Outcome.FAILED
    assert _was_stopped(ended[name].notices) is (name in OURS)
