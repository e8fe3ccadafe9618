"""Runs coroutines in a worker so that the task can be told to stop at any moment; `stopping` decides about its job.

Airflow calls `on_kill` inside a signal handler, on top of any code: it may only wake the running loop. The same call
serves a user's kill, a drained worker and lost heartbeats. Nothing raises afterwards, so a task that simply continued
would end in success.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

T = TypeVar("T")


class ToldToStop(Exception):
    """The task was told to stop while it waited; the job is unchanged."""


class Waiting:
    """Runs one task's coroutines: each until it is done, or until `wake`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: asyncio.Event | None = None
        self._is_told = False

    def wake(self) -> None:
        """Tell the task to stop; safe in a signal handler, and returns at once."""
        self._is_told = True
        if self._loop is not None and self._told is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told.set)

    def run(self, coroutine: Coroutine[Any, Any, T], *, grace: float = 0.0) -> T:
        """Return the coroutine's result.

        Args:
            coroutine: what to wait for.
            grace: seconds for it to complete after the task was told to stop; then it is cancelled.

        Raises:
            ToldToStop: the coroutine has completed or was cancelled; it never started if `wake` was called before.
        """
        if self._is_told:
            coroutine.close()
            raise ToldToStop
        return asyncio.run(self._run(coroutine, grace))

    async def _run(self, coroutine: Coroutine[Any, Any, T], grace: float) -> T:
        self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
        if self._is_told:  # `wake` was called before this loop existed
            self._told.set()
        told = asyncio.create_task(self._told.wait())
        main = asyncio.create_task(coroutine)
        try:
            await asyncio.wait({main, told}, return_when=asyncio.FIRST_COMPLETED)
            if main.done():
                return main.result()
            await asyncio.wait({main}, timeout=grace)
        finally:
            for task in (main, told):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        raise ToldToStop


@contextlib.contextmanager
def alarm_put_off(seconds: float) -> Iterator[None]:
    """Delay Airflow's `execution_timeout`, so that our own deadline can delete the job first.

    Airflow's alarm raises wherever Python is at that moment; asyncio logs and swallows what is raised in a callback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    airflows = signal.getsignal(signal.SIGALRM)

    def put_off(*_: object) -> None:
        signal.signal(signal.SIGALRM, airflows)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    signal.signal(signal.SIGALRM, put_off)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, airflows)
