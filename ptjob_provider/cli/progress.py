"""Read how far trainings are from the last lines of rank 0's logs, with one request for each log."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.curve import Curve
from ptjob_provider.core.errors import ClusterUnavailable, PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.training_progress import Progress, ProgressReader, of_trainer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import Inspector
    from ptjob_provider.core.run.snapshot import Snapshot
    from ptjob_provider.core.training_progress import LinePattern

    Place = tuple[str, str]  # a pod and its container

LINES = 5000
"""Last lines that are read for curves; a node keeps about 10 MiB of a log."""

FEW_LINES = 200
"""Last lines that are read for the step of each of many jobs."""

ANSWER = 5.0
"""Maximum seconds until the lines have arrived: of one log, and of all logs of a list."""

AT_ONCE = 128
"""Maximum number of logs that are read at the same time: more than the 110 pods that a node has by default, so that
one that does not answer never keeps others waiting."""

_STARTED = {"Running", "Succeeded", "Failed"}
"""Phases of pods whose training may have a log."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Progress and curve of a training, read from its log.

    Attributes:
        progress: its state after the last line.
        curve: its course over the lines that were read.
    """

    progress: Progress
    curve: Curve


async def of_snapshot(inspector: Inspector, snapshot: Snapshot, pattern: LinePattern | None = None) -> Seen | None:
    """Return what rank 0's log says; None if rank 0 has no log, or if the log does not say anything.

    What a TrainJob's program has reported to Trainer counts alone.

    Raises:
        PTJobError: the log cannot be read; see `read`.
    """
    submission = snapshot.submission
    ref, pod = submission.ref, _newest(submission.rank0, snapshot.pods, kinds.replica_of(snapshot.job))
    if reported := of_trainer(snapshot.job):
        found: Seen | None = Seen(progress=reported, curve=Curve())
    else:
        found = await read(inspector, ref, _container(ref, pod), pattern) if pod else None
    is_over = snapshot.status.phase.is_terminal
    return replace(found, progress=replace(found.progress, eta=None)) if found and is_over else found


async def of_jobs(
    inspector: Inspector, jobs: Sequence[Manifest], pods: Callable[[JobRef], Awaitable[Sequence[Manifest]]]
) -> list[Progress | PTJobError | None]:
    """Return the state of each job within ANSWER seconds, or why its log could not be read.

    The log of a TrainJob whose program reports to Trainer is not read.

    Args:
        inspector: reads the logs.
        jobs: the jobs.
        pods: returns a job's pods, for kinds whose pods have other names than their replicas.
    """
    slots = asyncio.Semaphore(AT_ONCE)

    async def state(job: Manifest) -> Progress | PTJobError | None:
        ref, replica = JobRef.of(job), next((each.name for each in kinds.replicas(job)), "")
        if (reported := of_trainer(job)) is not None or not replica:
            return reported
        try:
            async with asyncio.timeout(ANSWER), slots:
                pod: Manifest | None = {"metadata": {"name": replica}}
                if not kinds.kind_of(job).HAS_FIXED_POD_NAMES:
                    pod = _newest(replica, await pods(ref), kinds.replica_of(job))
                found = await read(inspector, ref, _container(ref, pod), lines=FEW_LINES) if pod else None
                return found.progress if found else None
        except TimeoutError:
            return _unanswered(ref)
        except PTJobError as error:
            return error

    return await asyncio.gather(*map(state, jobs))


def _newest(
    replica: str, pods: Sequence[Manifest], replica_of: Callable[[Mapping[str, object]], str]
) -> Manifest | None:
    """Return the replica's newest pod; None if there is none, or if it has not started."""
    own = [pod for pod in pods if replica_of(pod) == replica]
    return own[-1] if own and (own[-1].get("status") or {}).get("phase") in _STARTED else None


def _container(ref: JobRef, pod: Manifest) -> Place:
    """Return the names of the pod and of its training container: the first one if none has the kind's name."""
    names, usual = [each["name"] for each in (pod.get("spec") or {}).get("containers") or ()], kinds.named(ref.kind)
    return pod["metadata"]["name"], names[0] if names and usual.CONTAINER not in names else usual.CONTAINER


async def read(
    inspector: Inspector, ref: JobRef, place: Place, pattern: LinePattern | None = None, *, lines: int = LINES
) -> Seen | None:
    """Return what the last lines of a container say about the training in it; None if they say nothing.

    Raises:
        ClusterUnavailable: they did not arrive within ANSWER seconds.
        PTJobError: they cannot be read.
    """
    reader, curve = ProgressReader(pattern), Curve()
    log = inspector.container_log(ref, *place, follow=False, tail=lines)
    try:
        async with asyncio.timeout(ANSWER), aclosing(log):
            async for line in log:
                before = reader.progress
                if (progress := reader.feed(line)) is not None and progress is not before:
                    curve.add(progress)
                await asyncio.sleep(0)  # the limit holds also for lines that are there, and take long to understand
    except TimeoutError as error:
        raise _unanswered(ref) from error
    return Seen(progress=reader.progress, curve=curve) if reader.progress else None


def _unanswered(ref: JobRef) -> ClusterUnavailable:
    return ClusterUnavailable(f"{ref}: rank 0's log did not arrive within {ANSWER:.0f} s")
