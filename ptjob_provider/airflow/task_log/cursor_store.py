"""Store the log cursors of an event loop in an XCom of each task: few concurrent writes, and none without need.

Each write is a request to Airflow's supervisor, which also manages the triggerer's database rows and reads all logs.
Jobs that wait in a queue have no log cursor: ten thousand of them cost no write.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow import supervisor
from ptjob_provider.airflow.task_log.rate_limiter import rate_limiters
from ptjob_provider.core.shared import OnePerLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from ptjob_provider.airflow.task_log.continued import ContinuedLog
    from ptjob_provider.airflow.task_log.rate_limiter import RateLimiter
    from ptjob_provider.core.logs import LogCursor

CURSOR_KEY = "ptjob_log_cursor"
"""XCom of the log cursor, for a trigger that continues in another process."""

SAVE_INTERVAL = 30.0
"""Minimum seconds between two writes of one task's XCom."""

PAUSE = 1.0
"""Seconds between two checks for due writes."""

AT_ONCE = 4
"""Maximum requests in progress; Airflow's supervisor responds one by one, between its other work."""

SPACING = 0.05
"""Seconds between two regular writes."""

LAST_TIMEOUT = 5.0
"""Seconds without progress after which a triggerer's shutdown waits no longer for the last cursors to be sent."""


class CursorStore:
    """Writes the log cursors of an event loop, each at most every SAVE_INTERVAL and only if it has moved.

    Args:
        rate_limiter: reports when records have left the process: the line of a stored cursor must be in the log.
        clock: monotonic seconds.

    Attributes:
        began: id of the try's task instance and job's uid → the line after which this process began that log; until the
            event is fired.
    """

    def __init__(self, rate_limiter: RateLimiter, clock: Callable[[], float] = time.monotonic) -> None:
        self.began: dict[tuple[Any, str], LogCursor | None] = {}
        self._rate_limiter = rate_limiter
        self._clock = clock
        self._logs: dict[ContinuedLog, tuple[LogCursor | None, float]] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._task: asyncio.Task[None] | None = None

    def add(self, log: ContinuedLog) -> None:
        """Store this cursor from now on; its current value counts as stored."""
        self._logs[log] = (log.cursor, self._clock())
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._save_until_done(), context=contextvars.Context())

    def drop(self, log: ContinuedLog) -> None:
        """Stop storing this cursor; its last value may still be in transit."""
        self._logs.pop(log, None)

    async def load(self, log: ContinuedLog) -> dict[str, Any] | None:
        """Return what an earlier run of this task's trigger stored about this job's log; None if there was none.

        Raises:
            Exception: Airflow did not respond.
        """
        async with self._at_once:
            return of_job(await supervisor.get_xcom(log.task_instance, CURSOR_KEY), log.uid)

    async def save(self, log: ContinuedLog, cursor: LogCursor | None) -> None:
        """Write a cursor at once; ignore a failed write."""
        async with self._at_once:
            await self._write(log, cursor)

    async def save_last(self, log: ContinuedLog) -> None:
        """Write the cursor of a log that this process has stopped writing, without reading Airflow's response."""
        if not await self._rate_limiter.drain(LAST_TIMEOUT):
            return
        writing = asyncio.create_task(self._write(log, log.cursor))
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # Airflow before 3.2 sends a request in a task of its own, one step later
            await self._rate_limiter.drain(LAST_TIMEOUT)
        finally:
            writing.cancel()

    async def _save_until_done(self) -> None:
        while self._logs:
            await asyncio.sleep(PAUSE)
            await self._save_moved()

    async def _save_moved(self) -> None:
        then = self._clock() - SAVE_INTERVAL
        moved = [
            (log, log.cursor)
            for log, (cursor, saved_at) in self._logs.items()
            if saved_at <= then and log.cursor != cursor
        ]
        if not moved or not await self._rate_limiter.drain(supervisor.TRIGGER_PATIENCE):
            return
        for log, cursor in moved:
            if log in self._logs:
                self._logs[log] = (cursor, self._clock())
                await self.save(log, cursor)
                await asyncio.sleep(SPACING)

    async def _write(self, log: ContinuedLog, cursor: LogCursor | None) -> None:
        value = {"uid": log.uid, "cursor": cursor.to_dict() if cursor else None}
        with contextlib.suppress(Exception):  # a cursor that is not stored costs repeated lines, not the job
            await supervisor.set_xcom(log.task_instance, CURSOR_KEY, value)


def of_job(stored: dict[str, Any] | None, uid: str) -> dict[str, Any] | None:
    """Return the stored state if it is of this job; an earlier try may have left that of another one."""
    return stored if stored and stored.get("uid") == uid else None


cursor_stores = OnePerLoop(lambda: CursorStore(rate_limiters.get()))
"""One store per event loop."""
