"""Run a task's coroutines until they are done, or until Airflow tells the task to stop.

Airflow calls `on_kill` inside a signal handler, on top of any code: it may only wake the running loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core.shared import until_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class StopRequested(Exception):
    """The task was told to stop while it waited; the job is unchanged."""


class StoppableLoop:
    """Runs one task's coroutines, each until it is done or until `wake` is called."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._is_stopped = False

    def wake(self) -> None:
        """Tell the task to stop; safe in a signal handler, and returns at once."""
        self._is_stopped = True
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    def run(self, coroutine: Coroutine[Any, Any, T], *, grace: Callable[[], float] = float) -> T:
        """Return the coroutine's result.

        Args:
            coroutine: the coroutine to wait for.
            grace: returns, when the task is told to stop, the seconds in which the coroutine may still complete; then
                it is cancelled.

        Raises:
            StopRequested: the coroutine has completed or was cancelled; it never started if `wake` was called before.
        """
        if self._is_stopped:
            coroutine.close()
            raise StopRequested
        return asyncio.run(self._run(coroutine, grace))

    async def _run(self, coroutine: Coroutine[Any, Any, T], grace: Callable[[], float]) -> T:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._is_stopped:  # `wake` was called before this loop existed
            self._stop.set()

        async def stop(main: asyncio.Task[T]) -> T:
            await asyncio.wait({main}, timeout=grace())
            raise StopRequested

        return await until_stopped(self._stop, coroutine, stop)
