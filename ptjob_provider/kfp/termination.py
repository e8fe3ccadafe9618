"""Handles the termination of a step: deletes its job with one request, before anything else.

Terminating a run sends SIGTERM to the step's processes, and about a second later the container is gone: Argo's first
process polls once a second whether its child has ended, and then exits. Therefore the step prints, requests and awaits
nothing before it sends the deletion. If the deletion fails, Kubernetes deletes the job together with its owner, the
step's pod.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, TypeVar

from ptjob_provider.core.errors import ClusterError
from ptjob_provider.core.shared import until_stopped

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import JobRef

T = TypeVar("T")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_CREATE_GRACE = 0.5
"""Seconds to wait for a create request in progress, whose response names the job to delete."""

_DELETE_TIMEOUT = 5.0
"""Timeout of the deletion in seconds, because an interrupted step on one machine must end, too."""


class Terminated(Exception):
    """The step was terminated; the message is a clause about the deletion of its job."""

    def __init__(self, deleted: JobRef | None) -> None:
        super().__init__(f"{deleted} was deleted" if deleted else "whether its job was deleted is not known")


class StepTermination:
    """Runs a coroutine for a step, and deletes the step's job when the step is terminated."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._stopped = asyncio.Event()
        self._job: asyncio.Future[JobRef] = asyncio.get_running_loop().create_future()

    def knows(self, ref: JobRef) -> None:
        """Set the job to delete on termination."""
        if not self._job.done():
            self._job.set_result(ref)

    def forgets(self) -> None:
        """Forget the job, which has ended; another one may be created."""
        self._job = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """Terminate the step."""
        self._stopped.set()

    def before_create(self) -> None:
        """End the work instead of a create request if the step is terminated: nobody may be left to delete the job."""
        if self._stopped.is_set():
            raise asyncio.CancelledError

    async def run(self, work: Coroutine[None, None, T]) -> T:
        """Run the work until it ends or the step is terminated, and return its result.

        Raises:
            Terminated: after SIGTERM, SIGINT or `stop`; the job's deletion was requested first, then the work was
                cancelled.
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            return await until_stopped(self._stopped, work, self._stop)
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    async def _stop(self, _: asyncio.Task[T]) -> T:
        raise Terminated(await self._delete())

    async def _delete(self) -> JobRef | None:
        try:
            async with asyncio.timeout(None if self._job.done() else _CREATE_GRACE):
                ref = await asyncio.shield(self._job)
            async with asyncio.timeout(_DELETE_TIMEOUT):
                await self._backend.delete(ref)
        except (TimeoutError, ClusterError):
            return None
        return ref
