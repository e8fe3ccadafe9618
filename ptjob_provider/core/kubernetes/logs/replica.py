"""Provide the state of one replica to its log reader: whether a run has ended, and whether another run may follow."""

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
"""Maximum seconds by which a container's status lags behind its log."""

_VERY_LATE = 10.0
"""The same before lines are reported lost: then it must be certain that no new run has started."""

_LONG = 3600.0


class LoggedReplica:
    """One replica of a job, according to the job's cache."""

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
        """Return the replica's newest existing pod; None if there is none."""
        return await self._cache.pod(self._name)

    async def pod_at_server(self) -> Manifest | None:
        """Return the replica's pod after a refresh of the cache from the server, or as cached if that fails."""
        with contextlib.suppress(ClusterError):
            await self._cache.refresh_pods()
        return await self.pod()

    async def check_job(self) -> None:
        """Raise an error if the job is gone: its pod may have run, unobserved, and its log is lost.

        Raises:
            JobNotFound: the job is gone.
        """
        if await self._cache.job() is None:
            raise JobNotFound(f"{self}: the job is gone, and its log with it, if there was one")

    async def change(self) -> None:
        """Wait for the next change of the job or its pods, at most a second."""
        await self._cache.change(_INTERVAL)

    def newest(self, pod: Manifest | None) -> Run | None:
        """Return the newest run of the training container in this pod; None if it has not started."""
        return runs.newest(pod, self._kind.CONTAINER)

    def start_of_pod(self, pod: Manifest) -> LogCursor:
        """Return the cursor before the first line of the pod's first run."""
        return parse.start_of_pod(pod, self._kind.CONTAINER)

    def has_reported_end(self, run: Run) -> bool:
        """Return whether the pod's status reported the run's end; it never does if a lost node's pod is removed."""
        reported = self.newest(self._cache.last_state(run.pod_uid))
        return reported is not None and (reported.ended or reported.restart_count > run.restart_count)

    async def has_ended(self, run: Run) -> bool:
        """Return whether the run has ended; waits a few seconds for a status that may be late."""
        return await self._holds(lambda pod: _is_past(run, pod), within=_LATE)

    async def is_replaced(self, run: Run) -> bool:
        """Return whether another run has replaced this one; waits for a late status, then asks the server."""

        def is_new(pod: Manifest | None) -> bool:
            return not run.is_same(self.newest(pod))

        return await self._holds(is_new, within=_VERY_LATE) or is_new(await self.pod_at_server())

    async def ends_before(self, run: Run, wait: Coroutine[Any, Any, object]) -> bool:
        """Wait for the coroutine, but no longer than the run lasts; return whether the run has ended."""
        waiting = asyncio.create_task(wait)
        ending = asyncio.create_task(self._holds(lambda pod: _is_past(run, pod), within=_LONG))
        try:
            await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
            return ending.done() and ending.result()
        finally:
            await cancelled(waiting, ending)

    async def is_over(self, pod: Manifest | None) -> bool:
        """Return whether the training container will not run again in any pod; verified at the server."""
        return await self._seems_over(pod) and not await self._has_other_pod_at_server(pod)

    async def _seems_over(self, pod: Manifest | None) -> bool:
        job = await self._cache.job()
        has_stopped = pod is None or runs.has_stopped(pod, self._kind.CONTAINER)
        if job is None:
            return has_stopped
        is_finished = self._kind.read_status(job).phase.is_terminal
        if pod is None:
            return is_finished
        return has_stopped and (
            is_finished or pod["status"].get("phase") == "Succeeded" or not self._kind.is_restarted(job, self._name)
        )

    async def _has_other_pod_at_server(self, pod: Manifest | None) -> bool:
        """Return whether the server has a pod, or a state of it, that the cache lacked. Makes one request at most.

        Jobs and pods are watched over two connections: while the watch of pods reconnects, the watch of jobs may report
        the end of a job whose pod was never observed. No request is needed after a pod that succeeded: it is the last.
        """
        if self._has_refreshed or (pod is not None and pod["status"].get("phase") == "Succeeded"):
            return False
        self._has_refreshed = True
        return await self.pod_at_server() != pod

    async def has_begun(self) -> bool:
        """Return whether the replica's pod must have existed: the job has started, and has this replica.

        True also for a job that is gone.
        """
        job = await self._cache.job()
        if job is None:
            return True
        has_replica = any(each.name == self._name for each in self._kind.replicas(job))
        return has_replica and self._kind.read_status(job).phase not in {JobPhase.PENDING, JobPhase.SUSPENDED}

    async def _holds(self, condition: Callable[[Manifest | None], bool], *, within: float) -> bool:
        """Return whether the condition holds for the pod now or within these seconds."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + within
        while not condition(await self.pod()):
            if clock() >= deadline:
                return False
            await self._cache.change(deadline - clock())
        return True


def _is_past(run: Run, pod: Manifest | None) -> bool:
    """Return whether the run has ended, according to the replica's current pod."""
    newest = runs.newest(pod, run.container)
    return newest is None or newest.ended or not run.is_same(newest)
