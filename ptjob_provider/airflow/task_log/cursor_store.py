"""Store the log cursors of an event loop in an XCom of each task: few concurrent writes, and none without need.

Each write is a request to the process that also manages the triggerer's rows and reads all logs. Ten thousand jobs that
only wait have no log cursor, and cost no write.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import secrets
import time
from typing import TYPE_CHECKING, Any, Protocol

from ptjob_provider.airflow import supervisor
from ptjob_provider.airflow.task_log.records import ceilings
from ptjob_provider.core.shared import OnePerLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from ptjob_provider.airflow.task_log.records import Ceiling
    from ptjob_provider.core.logs import LogCursor

BEAT = 2.0
"""Seconds between two beats."""

STANDSTILL = 8.0
"""Seconds without a beat after which another triggerer may have taken over, and been suspended itself."""


class Pulse:
    """Beats between `start` and `stop`, and counts the gaps.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beaten_at = clock()
        self._standstills = 0
        self._timer: asyncio.TimerHandle | None = None

    def standstills(self) -> int:
        """Return how often this process was suspended, including a gap that has just ended."""
        now = self._clock()
        if self._timer is not None and now - self._beaten_at >= STANDSTILL:
            self._standstills += 1
        self._beaten_at = now
        return self._standstills

    def start(self) -> None:
        """Start beating, by a timer that waits for nothing else, so that only a blocked loop can stop it."""
        self.standstills()
        self._timer = asyncio.get_running_loop().call_later(BEAT, self.start, context=contextvars.Context())

    def stop(self) -> None:
        """Stop beating: there is no trigger left that another process could take over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


CURSOR_KEY = "ptjob_log_cursor"
"""XCom of the log cursor, for a trigger that resumes in another process."""

KEEP_INTERVAL = 30.0
"""Minimum seconds between two writes of one task's XCom."""

PAUSE = 1.0
"""Seconds between two checks for due writes."""

AT_ONCE = 4
"""Maximum requests in progress; Airflow responds to them one by one, between its own."""

SPACING = 0.05
"""Seconds between two regular writes."""

FIRED = 5.0
"""Seconds after which an event has certainly gone to Airflow, which fetches events every second."""

LAST_PATIENCE = 5.0
"""Seconds that a triggerer's shutdown waits for the last cursors to be sent; Airflow kills it after ten."""


class Place(Protocol):
    """One task's log cursor, provided by the log's writer."""

    @property
    def task_instance(self) -> Any:
        """The task."""

    @property
    def uid(self) -> str:
        """The job's."""

    @property
    def cursor(self) -> LogCursor | None:
        """The last line that the logger has received."""

    @property
    def tellers(self) -> dict[str, Any]:
        """The processes that have written the log, and the line at which each began."""


class Keeper:
    """Writes the log cursors of an event loop, each at most every KEEP_INTERVAL and only if it has moved.

    Args:
        ceiling: reports when records have left the process: a cursor promises that its line is in the log.
        pulse: reports when another process may have stored a later cursor meanwhile.
        clock: monotonic seconds.

    Attributes:
        name: unique name of this process.
    """

    def __init__(
        self, ceiling: Ceiling, pulse: Pulse | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = secrets.token_hex(4)
        self.pulse = pulse or Pulse()
        self._ceiling = ceiling
        self._clock = clock
        self._places: dict[Place, tuple[LogCursor | None, float]] = {}
        self._fired: dict[Place, float] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._standstills = 0
        self._resting_until = 0.0
        self._task: asyncio.Task[None] | None = None

    def add(self, place: Place) -> None:
        """Store this cursor from now on; its current value counts as stored."""
        self._places[place] = (place.cursor, self._clock())
        self._keep_on()

    def drop(self, place: Place) -> None:
        """Stop storing this cursor; its last value may still be in transit."""
        self._places.pop(place, None)

    def fired(self, place: Place) -> None:
        """Store the cursor only if the triggerer stops before Airflow has fetched the event."""
        self._fired[place] = self._clock()
        self._keep_on()

    async def kept(self, place: Place) -> dict[str, Any] | None:
        """Return the cursor stored by an earlier run of this task's trigger; None if there is none.

        Raises:
            Exception: Airflow did not respond.
        """
        async with self._at_once:
            return await supervisor.kept(place.task_instance, CURSOR_KEY)

    async def keep(self, place: Place, cursor: LogCursor | None) -> None:
        """Write a cursor at once, unless another process may have stored a later one; on failure it may be missing."""
        async with self._at_once:
            await self._write(place, cursor, is_last=False)

    async def keep_last(self, *places: Place) -> None:
        """Write the cursors of logs that this process has stopped writing, without reading Airflow's responses."""
        last = [(place, place.cursor) for place in places]
        if not last or not await self._ceiling.left(LAST_PATIENCE):
            return
        writing = [asyncio.create_task(self._write(place, cursor, is_last=True)) for place, cursor in last]
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # before Airflow 3.2 a request is a task of its own
            await self._ceiling.left(LAST_PATIENCE)
        finally:
            for each in writing:
                each.cancel()

    def is_outdated(self) -> bool:
        """Return whether this process was suspended recently: another one may have its triggers and later cursors."""
        now, standstills = self._clock(), self.pulse.standstills()
        if standstills > self._standstills:
            self._standstills, self._resting_until = standstills, now + KEEP_INTERVAL
        return now < self._resting_until

    def _keep_on(self) -> None:
        if self._task is None or self._task.done():
            self.pulse.start()
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._keep_all(), context=contextvars.Context())

    async def _keep_all(self) -> None:
        try:
            while self._places or self._fired:
                await asyncio.sleep(PAUSE)
                self._forget_events_that_have_gone()
                await self._keep_those_that_moved()
        except asyncio.CancelledError:  # the event loop ends
            await self.keep_last(*self._fired)
            raise
        finally:
            self.pulse.stop()

    def _forget_events_that_have_gone(self) -> None:
        then = self._clock() - FIRED
        self._fired = {place: at for place, at in self._fired.items() if at > then}

    async def _keep_those_that_moved(self) -> None:
        then = self._clock() - KEEP_INTERVAL
        moved = [
            (place, place.cursor)
            for place, (cursor, kept_at) in self._places.items()
            if kept_at <= then and place.cursor != cursor
        ]
        if not moved or not await self._ceiling.left(supervisor.TRIGGER_PATIENCE):
            return
        for place, cursor in moved:
            if place in self._places:
                self._places[place] = (cursor, self._clock())
                await self.keep(place, cursor)
                await asyncio.sleep(SPACING)

    async def _write(self, place: Place, cursor: LogCursor | None, *, is_last: bool) -> None:
        if self.is_outdated():
            return
        kept = cursor.to_dict() if cursor else None
        value = {"uid": place.uid, "cursor": kept, "is_last": is_last, "tellers": place.tellers}
        with contextlib.suppress(Exception):  # a cursor that is not stored costs repeated lines, not the job
            await supervisor.keep(place.task_instance, CURSOR_KEY, value)


keepers = OnePerLoop(lambda: Keeper(ceilings.get()))
"""One keeper per event loop."""
