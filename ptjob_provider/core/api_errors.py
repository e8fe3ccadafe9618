"""Wait out an API server that refuses requests about a job that exists.

A credential expires, RBAC is applied anew, a gateway answers in the server's name: all of that passes, and the job runs
on meanwhile. So no refusal ends the following of a job before `[ptjob] api_error_timeout`, and none ever ends the job.
The task's log says when refusals begin and when they are over. A server that does not answer is asked without an end.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, JobNotFound, PTJobError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

T = TypeVar("T")

TIMEOUT = 900.0
"""Seconds of uninterrupted refusals after which following is given up, unless an installation says otherwise."""

_AWAY = 2.0
"""Seconds between questions to a back-end that has given up answering, after tries of its own."""

_PAUSE = (1.0, 5.0)
"""Seconds between requests that are refused, at first and later; less than a back-end keeps what it knows of a job that
nobody follows any more."""


class ApiErrors:
    """The refusals of requests about one job.

    Args:
        job: its namespace and name.
        tell: takes sentences for the task's log.
        timeout: seconds of uninterrupted refusals after which an error is raised.
    """

    def __init__(self, job: str, tell: Callable[[str], None], *, timeout: float = TIMEOUT) -> None:
        self._job = job
        self._tell = tell
        self._timeout = timeout
        self._began: dict[object, float] = {}

    async def answer(self, ask: Callable[[], Awaitable[T]], *, though_away: bool = True) -> T:
        """Ask until there is an answer, and return it.

        Args:
            ask: makes the request.
            though_away: whether a server that does not answer is asked again, too.

        Raises:
            JobNotFound: there is nothing to ask about.
            ClusterUnavailable: it was refused for too long, or not answered where that is not borne.
        """
        request = object()
        try:
            while True:
                try:
                    found = await ask()
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
                    return found
        finally:
            self._began.pop(request, None)

    async def stream(self, open_: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        """Yield what a stream yields; one that ends with a refusal is opened again.

        Raises:
            JobNotFound: there is nothing to ask about.
            ClusterUnavailable: it was refused for too long.
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
                except JobNotFound:
                    raise
                except PTJobError as error:
                    if clock() - opened > _PAUSE[1]:  # it was open
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
                f"{self._job}: the API server refuses a request about the job: {error}. The job is left as it is, and "
                f"it is asked again for up to {self._timeout:.0f} s"
            )
        lasted = now - self._began.setdefault(request, now)
        if lasted >= self._timeout:
            raise self._given_up(error, lasted) from error
        pause = min(max(lasted, _PAUSE[0]), _PAUSE[1]) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
        await asyncio.sleep(min(pause, self._timeout - lasted))

    def _answered(self, request: object) -> None:
        if request not in self._began:
            return
        lasted = asyncio.get_running_loop().time() - self._began.pop(request)
        if not self._began:
            self._tell(f"{self._job}: the API server answers again, after {lasted:.0f} s")

    def _given_up(self, error: PTJobError, lasted: float) -> ClusterUnavailable:
        return ClusterUnavailable(
            f"{self._job}: the API server has refused a request about the job for {lasted:.0f} s: {error}. The job was "
            f"left as it is. Check the credential, the Role (docs/kubernetes-role.yaml: get, list "
            f"and watch of jobs and pods, get of pods/log) and what stands between here and the API server",
            code=error.code if isinstance(error, ClusterError) else 0,
        )
