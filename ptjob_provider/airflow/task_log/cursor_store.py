"""Store the log cursors of an event loop in an XCom of each task: few concurrent writes, and none without need.

Each write is a request to Airflow's supervisor, which also manages the triggerer's database rows and reads all logs.
Jobs that wait in a queue have no log cursor: ten thousand of them cost no write.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import secrets
import time
from typing import TYPE_CHECKING, Any, Protocol

from ptjob_provider.airflow import supervisor
from ptjob_provider.airflow.task_log.records import rate_limiters
from ptjob_provider.core.shared import OnePerLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from ptjob_provider.airflow.task_log.records import RateLimiter
    from ptjob_provider.core.logs import LogCursor

CHECK_INTERVAL = 2.0
"""Seconds between two checks of a `FreezeDetector`."""

FROZEN_AFTER = 8.0
"""Seconds without a check after which another triggerer may have taken over, and been suspended itself."""


class FreezeDetector:
    """Counts how often this process was suspended between `start` and `stop`.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._checked_at = clock()
        self._freezes = 0
        self._timer: asyncio.TimerHandle | None = None

    def freezes(self) -> int:
        """Return how often this process was suspended, including a gap that has just ended."""
        now = self._clock()
        if self._timer is not None and now - self._checked_at >= FROZEN_AFTER:
            self._freezes += 1
        self._checked_at = now
        return self._freezes

    def start(self) -> None:
        """Start checking, with a timer that depends on nothing else: only a blocked event loop can stop it."""
        self.freezes()
        self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL, self.start, context=contextvars.Context())

    def stop(self) -> None:
        """Stop checking: there is no trigger left that another process could take over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


CURSOR_KEY = "ptjob_log_cursor"
"""XCom of the log cursor, for a trigger that resumes in another process."""

SAVE_INTERVAL = 30.0
"""Minimum seconds between two writes of one task's XCom."""

PAUSE = 1.0
"""Seconds between two checks for due writes."""

AT_ONCE = 4
"""Maximum requests in progress; Airflow's supervisor responds one by one, between its other work."""

SPACING = 0.05
"""Seconds between two regular writes."""

FIRED = 5.0
"""Seconds after which Airflow has certainly fetched an event; it fetches events every second."""

LAST_TIMEOUT = 5.0
"""Seconds that a triggerer's shutdown waits for the last cursors to be sent; Airflow kills it after ten."""


class StoredLog(Protocol):
    """A task's log whose cursor is stored."""

    @property
    def task_instance(self) -> Any:
        """The task instance that has the XCom."""

    @property
    def uid(self) -> str:
        """The job's uid."""

    @property
    def cursor(self) -> LogCursor | None:
        """The position of the last line that was written."""

    @property
    def writers(self) -> dict[str, Any]:
        """The processes that have written the log, and the line at which each began."""


class CursorStore:
    """Writes the log cursors of an event loop, each at most every SAVE_INTERVAL and only if it has moved.

    Args:
        rate_limiter: reports when records have left the process: the line of a stored cursor must be in the log.
        freeze_detector: reports that another process may have stored a later cursor meanwhile.
        clock: monotonic seconds.

    Attributes:
        name: unique name of this process.
    """

    def __init__(
        self,
        rate_limiter: RateLimiter,
        freeze_detector: FreezeDetector | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = secrets.token_hex(4)
        self.freeze_detector = freeze_detector or FreezeDetector()
        self._rate_limiter = rate_limiter
        self._clock = clock
        self._logs: dict[StoredLog, tuple[LogCursor | None, float]] = {}
        self._fired: dict[StoredLog, float] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._freezes = 0
        self._resting_until = 0.0
        self._task: asyncio.Task[None] | None = None

    def add(self, log: StoredLog) -> None:
        """Store this cursor from now on; its current value counts as stored."""
        self._logs[log] = (log.cursor, self._clock())
        self._ensure_running()

    def drop(self, log: StoredLog) -> None:
        """Stop storing this cursor; its last value may still be in transit."""
        self._logs.pop(log, None)

    def fired(self, log: StoredLog) -> None:
        """Store the cursor only if the triggerer stops before Airflow has fetched the event."""
        self._fired[log] = self._clock()
        self._ensure_running()

    async def load(self, log: StoredLog) -> dict[str, Any] | None:
        """Return the cursor stored by an earlier run of this task's trigger; None if there is none.

        Raises:
            Exception: Airflow did not respond.
        """
        async with self._at_once:
            return await supervisor.get_xcom(log.task_instance, CURSOR_KEY)

    async def save(self, log: StoredLog, cursor: LogCursor | None) -> None:
        """Write a cursor at once, unless another process may have stored a later one; ignore a failed write."""
        async with self._at_once:
            await self._write(log, cursor, is_last=False)

    async def save_last(self, *logs: StoredLog) -> None:
        """Write the cursors of logs that this process has stopped writing, without reading Airflow's responses."""
        last = [(log, log.cursor) for log in logs]
        if not last or not await self._rate_limiter.drain(LAST_TIMEOUT):
            return
        writing = [asyncio.create_task(self._write(log, cursor, is_last=True)) for log, cursor in last]
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # Airflow before 3.2 sends a request in a task of its own, one step later
            await self._rate_limiter.drain(LAST_TIMEOUT)
        finally:
            for each in writing:
                each.cancel()

    def is_outdated(self) -> bool:
        """Return whether this process was suspended recently: another one may have its triggers and later cursors."""
        now, freezes = self._clock(), self.freeze_detector.freezes()
        if freezes > self._freezes:
            self._freezes, self._resting_until = freezes, now + SAVE_INTERVAL
        return now < self._resting_until

    def _ensure_running(self) -> None:
        if self._task is None or self._task.done():
            self.freeze_detector.start()
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._save_until_done(), context=contextvars.Context())

    async def _save_until_done(self) -> None:
        try:
            while self._logs or self._fired:
                await asyncio.sleep(PAUSE)
                self._forget_delivered_events()
                await self._save_moved()
        except asyncio.CancelledError:  # the event loop ends
            await self.save_last(*self._fired)
            raise
        finally:
            self.freeze_detector.stop()

    def _forget_delivered_events(self) -> None:
        then = self._clock() - FIRED
        self._fired = {log: at for log, at in self._fired.items() if at > then}

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

    async def _write(self, log: StoredLog, cursor: LogCursor | None, *, is_last: bool) -> None:
        if self.is_outdated():
            return
        position = cursor.to_dict() if cursor else None
        value = {"uid": log.uid, "cursor": position, "is_last": is_last, "writers": log.writers}
        with contextlib.suppress(Exception):  # a cursor that is not stored costs repeated lines, not the job
            await supervisor.set_xcom(log.task_instance, CURSOR_KEY, value)


cursor_stores = OnePerLoop(lambda: CursorStore(rate_limiters.get()))
"""One store per event loop."""
