"""Waiting in a worker, so that the task can be told to stop at any moment, and decides what that means for its job.

Airflow calls `on_kill` inside a signal handler, on top of whatever runs: it may only wake the loop that is there. The
same call serves a user's kill, a drained worker and lost heartbeats; nothing raises by itself afterwards, and a task
that simply went on would end in success.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.airflow import asking

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import JobRef

T = TypeVar("T")

_SUBMIT_PATIENCE = 2.0
"""Seconds that a create which is under way is given to arrive, so that what it made can be found and stopped."""


class ToldToStop(Exception):
    """The task was told to stop while it waited; the job is as it was."""


class Waiting:
    """One task's way of running coroutines: each until it is done, or until `wake`."""

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
            grace: seconds that it may go on after the task was told to stop; then it is cancelled.

        Raises:
            ToldToStop: and the coroutine has ended or was cancelled.
        """
        return asyncio.run(self._run(coroutine, grace))

    async def _run(self, coroutine: Coroutine[Any, Any, T], grace: float) -> T:
        self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
        if self._is_told:
            self._told.set()
        told = asyncio.create_task(self._told.wait())
        main = asyncio.create_task(coroutine)
        try:
            await asyncio.wait({main, told}, return_when=asyncio.FIRST_COMPLETED)
            if not told.done():
                return main.result()
            await asyncio.wait({main}, timeout=grace)
        finally:
            for task in (main, told):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        raise ToldToStop


async def keep_or_delete(backend: Backend, ref: JobRef, ti: Any, *, may_retry: bool) -> str:
    """Decide about the job of a task that was told to stop, and return what happened as a sentence.

    Not running any more (a person marked or cleared it): deleted. Still running (a drained worker) with tries left:
    kept for the next try to adopt; on the last try: deleted. No answer: kept.
    """
    state = await asking.state_from_worker(ti)
    if state is None:
        return f"{ref} is kept: Airflow did not say what became of this task within {asking.WORKER_PATIENCE:.0f} s"
    if state == "running" and may_retry:
        return f"{ref} is kept: the next try adopts it"
    await backend.delete(ref)
    why = "this was the last try" if state == "running" else f"the task is {state}"
    return f"{ref} was deleted: {why}"
