"""Keeps how far the logs of an event loop have come, in an XCom of each task: few writes at once, none without need.

Each write is a request to the process that also keeps the triggerer's rows and reads all logs; ten thousand jobs that
only wait have no place in a log, and cost none.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import secrets
import time
from typing import TYPE_CHECKING, Any, Protocol

from ptjob_provider.airflow import asking
from ptjob_provider.airflow.tasklog.pulse import Pulse
from ptjob_provider.airflow.tasklog.records import ceilings
from ptjob_provider.core.loops import OnePerLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from ptjob_provider.airflow.tasklog.records import Ceiling
    from ptjob_provider.core.logs import LogCursor

CURSOR_KEY = "ptjob_log_cursor"
"""The XCom that holds the place of the last line in the task's log, for a trigger that goes on in another process."""

KEEP_INTERVAL = 30.0
"""Seconds between two writes of one task's XCom, at least."""

PAUSE = 1.0
"""Seconds between two looks at whose turn it is."""

AT_ONCE = 4
"""Questions and writes that may be under way; Airflow answers them one after the other, its own ones in between."""

SPACING = 0.05
"""Seconds between two regular writes."""

FIRED = 5.0
"""Seconds after which an event has surely gone to Airflow, which fetches them every second."""

LAST_PATIENCE = 5.0
"""Seconds that a triggerer's end waits until the last cursors have left it; Airflow ends it by force after ten."""


class Place(Protocol):
    """Where one task's log is; told by whoever writes that log."""

    @property
    def task_instance(self) -> Any:
        """The task."""

    @property
    def uid(self) -> str:
        """The job's."""

    @property
    def cursor(self) -> LogCursor | None:
        """The last line that the logger has got."""

    @property
    def tellers(self) -> dict[str, Any]:
        """Who has told of it, from where on."""


class Keeper:
    """Writes the places of an event loop's logs, each at most every KEEP_INTERVAL and only if it has moved.

    Args:
        ceiling: says when records have left the process: a place vouches for its line, which whoever goes on after it
            must find in the log.
        pulse: says when another may have kept a later place meanwhile.
        clock: seconds that only grow.

    Attributes:
        name: of this process, and of no other.
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
        """Keep this place from now on; as it is now, it is kept already."""
        self._places[place] = (place.cursor, self._clock())
        self._keep_on()

    def drop(self, place: Place) -> None:
        """Keep it no more; its last place may still be on its way."""
        self._places.pop(place, None)

    def fired(self, place: Place) -> None:
        """Keep it only if the triggerer stops before Airflow has fetched the event: the trigger runs again then."""
        self._fired[place] = self._clock()
        self._keep_on()

    async def kept(self, place: Place) -> dict[str, Any] | None:
        """Return what was kept of this task's log in an earlier life; None if nothing was.

        Raises:
            Exception: Airflow did not answer.
        """
        async with self._at_once:
            return await asking.kept(place.task_instance, CURSOR_KEY)

    async def keep(self, place: Place, cursor: LogCursor | None) -> None:
        """Write a place at once, unless another may have kept a later one; without an answer it may be missing."""
        async with self._at_once:
            await self._write(place, cursor, is_last=False)

    async def keep_last(self, *places: Place) -> None:
        """Write the places of logs that this process writes no more; answers of Airflow's are not read by then."""
        last = [(place, place.cursor) for place in places]
        if not last or not await self._ceiling.left(LAST_PATIENCE):
            return
        writing = [asyncio.create_task(self._write(place, cursor, is_last=True)) for place, cursor in last]
        try:
            await asyncio.sleep(0)
            await self._ceiling.left(LAST_PATIENCE)
        finally:
            for each in writing:
                each.cancel()

    def is_outdated(self) -> bool:
        """Whether this process stood still a short while ago: then another may have its triggers, and know more."""
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
        if not moved or not await self._ceiling.left(asking.TRIGGER_PATIENCE):
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
        with contextlib.suppress(Exception):  # a place that is not kept costs repeated lines, not the job
            await asking.keep(place.task_instance, CURSOR_KEY, value)


keepers = OnePerLoop(lambda: Keeper(ceilings.get()))
"""Each event loop's keeper."""
