"""State of one replica for its log reader: whether a run is over, and whether all are."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, JobNotFound
from ptjob_provider.core.kubernetes.logs import parse, runs
from ptjob_provider.core.shared import cancelled
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.informer.cache import JobCache
    from ptjob_provider.core.kubernetes.logs.runs import Run
    from ptjob_provider.core.logs import LogCursor

_INTERVAL = 1.0
_LATE = 3.0
"""Maximum lag in seconds of a container's status behind its log."""

_VERY_LATE = 10.0
"""The same before lines are reported lost: it must be certain that no new run has started."""

_LONG = 3600.0


class Replica:
    """One replica of a job, as cached in the job."""

    def __init__(self, cache: JobCache, ref: JobRef, name: str) -> None:
        self._cache = cache
        self._ref = ref
        self._name = name
        self._kind = kinds.named(ref.kind)
        self._has_refreshed = False

    def __str__(self) -> str:
        """Return namespace and name."""
        return f"{self._ref.namespace}/{self._name}"

    async def pod(self) -> Manifest | None:
        """Return its current pod; None if there is none."""
        return await self._cache.pod(self._name)

    async def pod_at_server(self) -> Manifest | None:
        """Return its pod as the server has it now, or its last known state."""
        with contextlib.suppress(ClusterError):
            await self._cache.refresh_pods()
        return await self.pod()

    async def check_job(self) -> None:
        """Raise JobNotFound if the job is gone: its pod may have run since it was last observed."""
        if await self._cache.job() is None:
            raise JobNotFound(f"{self}: the job is gone, and its log with it, if there was one")

    async def change(self) -> None:
        """Wait for the next change, or for a moment."""
        await self._cache.change(_INTERVAL)

    def newest(self, pod: Manifest | None) -> Run | None:
        """Return the newest run in this pod; None if there was none yet."""
        return runs.newest(pod, self._kind.CONTAINER)

    def start_of_pod(self, pod: Manifest) -> LogCursor:
        """Return the cursor before the first line of the pod's first run."""
        return parse.start_of_pod(pod, self._kind.CONTAINER)

    def has_reported_end(self, run: Run) -> bool:
        """Return whether its pod reported the run's end: a pod removed from a silent node goes without one."""
        reported = self.newest(self._cache.last_state(run.pod_uid))
        return reported is not None and (reported.ended or reported.restart_count > run.restart_count)

    def has_reported_end_before(self, run: Run, timestamp: str) -> bool:
        """Return whether its pod, deleted or not, reported the run's end before a line of this instant was written."""
        reported = runs.kept(run, self._cache.last_state(run.pod_uid))
        return reported is not None and reported[0].was_over_before(timestamp)

    async def has_ended(self, run: Run) -> bool:
        """Return whether the run is over, by a sufficiently fresh status."""
        return await self._holds(lambda pod: _is_past(run, pod), within=_LATE)

    async def is_replaced(self, run: Run) -> bool:
        """Return whether another run has replaced this one, by a certainly fresh status."""

        def is_decided(pod: Manifest | None) -> bool:
            return not run.is_same(self.newest(pod)) or (pod is not None and self._has_stopped(pod))

        await self._holds(is_decided, within=_VERY_LATE)
        return not run.is_same(self.newest(await self.pod()))

    async def ends_before(self, run: Run, wait: Coroutine[Any, Any, None]) -> bool:
        """Wait for the awaitable, but no longer than the run lasts; return whether the run is over."""
        waiting = asyncio.create_task(wait)
        ending = asyncio.create_task(self._holds(lambda pod: _is_past(run, pod), within=_LONG))
        try:
            await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
            return ending.done() and ending.result()
        finally:
            await cancelled(waiting, ending)

    async def is_over(self, pod: Manifest | None) -> bool:
        """Return whether the training container will not run again, in any pod, and its state is complete."""
        return await self._seems_over(pod) and not await self._is_more_known(pod)

    async def _seems_over(self, pod: Manifest | None) -> bool:
        job = await self._cache.job()
        if job is None:
            return pod is None or self._has_stopped(pod)
        is_finished = self._kind.read_status(job).phase.is_terminal
        if pod is None:
            return is_finished
        return self._has_stopped(pod) and (
            is_finished or pod["status"].get("phase") == "Succeeded" or not self._kind.is_restarted(job, self._name)
        )

    async def _is_more_known(self, pod: Manifest | None) -> bool:
        """Return whether the server has more pods of an ended job than the cache; requested once.

        Jobs and pods are watched over two connections: while one reconnects, the other may report the end of a job
        whose pod was never observed. A pod that has succeeded is the last one.
        """
        if self._has_refreshed or (pod is not None and pod["status"].get("phase") == "Succeeded"):
            return False
        self._has_refreshed = True
        return await self.pod_at_server() != pod

    async def has_begun(self) -> bool:
        """Return whether its pod must have existed: the job has a replica of this name, and has run."""
        job = await self._cache.job()
        if job is None:
            return True
        is_ours = any(each.name == self._name for each in self._kind.replicas(job))
        return is_ours and self._kind.read_status(job).phase not in {JobPhase.PENDING, JobPhase.SUSPENDED}

    def _has_stopped(self, pod: Manifest) -> bool:
        return runs.has_stopped(pod, self._kind.CONTAINER)

    async def _holds(self, holds: Callable[[Manifest | None], bool], *, within: float) -> bool:
        """Return whether the condition holds for the pod now or within these seconds."""
        clock = asyncio.get_running_loop().time
        until = clock() + within
        while not holds(await self.pod()):
            if clock() >= until:
                return False
            await self._cache.change(until - clock())
        return True


def _is_past(run: Run, pod: Manifest | None) -> bool:
    """Return whether the run is over, according to its pod."""
    newest = runs.newest(pod, run.container)
    return newest is None or newest.ended or not run.is_same(newest)
