"""Retry requests about an existing job while the API server refuses them.

Refusals are usually temporary: a credential has expired, RBAC is being reapplied, a gateway answers instead of the
server. The job continues meanwhile. Refusals therefore never end the job, and they end following only after `[ptjob]
api_error_timeout`. The task's log says when refusals begin and end. Requests that get no answer at all are retried
without limit.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, JobNotFound, PTJobError
from ptjob_provider.core.shared import spread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

T = TypeVar("T")

TIMEOUT = 900.0
"""Default number of seconds of uninterrupted refusals after which following is given up."""

_AWAY = 2.0
"""Seconds to wait before a repeated request when the server did not answer; the back-end has retried before."""

_PAUSE = (1.0, 5.0)
"""Minimum and maximum seconds between retries of refused requests. The maximum is shorter than the time for which a
back-end keeps its cache of a job without followers."""

_ADVICE = (
    ". Check the credential, the Role (deploy/base: get, list and watch of jobs and pods, get of pods/log) and any "
    "proxy in front of the API server"
)


class ApiErrors:
    """Retries requests about one job.

    Args:
        job: namespace and name of the job.
        tell: writes a sentence to the task's log.
        timeout: seconds of uninterrupted refusals after which an error is raised.
    """

    def __init__(self, job: str, tell: Callable[[str], None], *, timeout: float = TIMEOUT) -> None:
        self._job = job
        self._tell = tell
        self._timeout = timeout
        self._began: dict[object, float] = {}

    async def answer(self, request_once: Callable[[], Awaitable[T]], *, though_away: bool = True) -> T:
        """Make a request, repeat it while it is refused, and return the answer.

        Args:
            request_once: makes the request.
            though_away: also repeat the request while the server does not answer.

        Raises:
            JobNotFound: the job does not exist.
            ClusterUnavailable: the server refused for too long, or did not answer and `though_away` is False.
        """
        request = object()
        try:
            while True:
                try:
                    answer = await request_once()
                except JobNotFound:
                    raise
                except ClusterUnavailable as error:
                    if not though_away:
                        raise
                    await asyncio.sleep(error.retry_after or _AWAY)
                except PTJobError as error:
                    await self._wait(request, error)
                else:
                    self._answered(request)
                    return answer
        finally:
            self._began.pop(request, None)

    async def stream(self, open_: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        """Yield the items of a stream; if a refusal ends the stream, open it again.

        Raises:
            JobNotFound: the job does not exist.
            ClusterUnavailable: the server refused for too long.
        """
        request = object()
        clock = asyncio.get_running_loop().time
        try:
            while True:
                opened = clock()
                try:
                    async with aclosing(open_()) as items:
                        async for item in items:
                            self._answered(request)
                            yield item
                            del item  # saves memory: ten thousand followers may wait for the next one
                except JobNotFound:
                    raise
                except PTJobError as error:
                    if clock() - opened > _PAUSE[1]:  # the stream was open: refusals have ended
                        self._answered(request)
                    await self._wait(request, error)
                else:
                    return
        finally:
            self._began.pop(request, None)

    async def _wait(self, request: object, error: PTJobError) -> None:
        now = asyncio.get_running_loop().time()
        if not self._began:
            self._tell(
                f"{self._job}: a request about the job is refused: {error}. The job is left as it is, and "
                f"the request is repeated for up to {self._timeout:.0f} s"
            )
        lasted = now - self._began.setdefault(request, now)
        if lasted >= self._timeout:
            raise self._given_up(error, lasted) from error
        pause = spread(min(max(lasted, _PAUSE[0]), _PAUSE[1]))
        await asyncio.sleep(min(pause, self._timeout - lasted))

    def _answered(self, request: object) -> None:
        if request not in self._began:
            return
        lasted = asyncio.get_running_loop().time() - self._began.pop(request)
        if not self._began:
            self._tell(f"{self._job}: its requests are answered again, after {lasted:.0f} s")

    def _given_up(self, error: PTJobError, lasted: float) -> ClusterUnavailable:
        return ClusterUnavailable(
            f"{self._job}: a request about the job has been refused for {lasted:.0f} s: {error}. The job was left as "
            f"it is{_ADVICE if isinstance(error, ClusterError) else ''}",
            code=error.code if isinstance(error, ClusterError) else 0,
        )


async def through_outages(
    operation: Callable[[], Awaitable[T]], *, pauses: Sequence[float], tell: Callable[[str], None]
) -> T:
    """Repeat the operation after each of these pauses, in seconds, while the cluster does not respond.

    Raises:
        ClusterUnavailable: there was no response after the last pause either.
    """
    for pause in pauses:
        try:
            return await operation()
        except ClusterUnavailable as error:
            tell(f"trying again in {pause:.0f} s: {error}")
            await asyncio.sleep(pause)
    return await operation()
