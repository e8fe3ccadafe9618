"""One trigger's part in its task's log: where it goes on after an earlier life, and what it leaves to a later one.

A trigger lives again in another process when its triggerer stops, dies or freezes. Nothing is asked or kept before
rank 0 has begun to write: a job that waits in a queue has no place in a log.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow.tasklog.keeping import keepers
from ptjob_provider.airflow.tasklog.sink import TaskLog
from ptjob_provider.core.logs import LogCursor

if TYPE_CHECKING:
    from collections.abc import Callable

YOUTH = 8.0
"""Seconds after its deferral in which a trigger is taken for the first of its try. Another triggerer takes over after
30 s without a heartbeat, and a new one needs longer than this to start; the first question to a fresh triggerer's API
may take 20 s on a busy machine, and the log should not wait for it."""

_TELLERS = 7
"""How many earlier lives are remembered; a process that has ended never comes back."""

_LAST_LINES = 2.0
"""Seconds that a triggerer's end waits for lines which have not had their turn; a later life reads the rest again."""


_UNRECORDED = "a reader that was killed soon after the beginning may have told them"


class PlaceInLog:
    """Where a trigger is in its task's log; what `keeping.Keeper` keeps.

    Args:
        task_instance: the task.
        uid: the job's: what was kept of another job's log is another place.
        logger: the task's.
        age: returns the seconds since the deferral.

    Attributes:
        has_begun: whether the place is known: an earlier life has been asked for, or there is none.
        tellers: the processes that have told of the log, by their keepers' names, and the line that each began after.
    """

    def __init__(self, task_instance: Any, uid: str, *, logger: Any, age: Callable[[], float]) -> None:
        self.task_instance = task_instance
        self.uid = uid
        self._logger = logger
        self._age = age
        self._age_at_birth = age()
        self._keeper = keepers.get()
        self.has_begun = False
        self._owning_up: asyncio.Task[None] | None = None
        self.sink = TaskLog(logger, pulse=self._keeper.pulse)
        self.tellers: dict[str, Any] = {}

    @property
    def cursor(self) -> LogCursor | None:
        """The last line that the logger has got."""
        return self.sink.cursor

    async def begin(self) -> LogCursor | None:
        """Return the line to go on after, now that there is a log to read; this life is on record from then on."""
        if self._age() < YOUTH:
            self.has_begun = True
            self._keeper.add(self)
            self._owning_up = asyncio.create_task(self._own_up())
            return None
        before = await self._earlier_life()
        cursor, why_repeated = start(before, self.uid, self._keeper.name)
        self.has_begun = True
        if before is None and YOUTH <= self._age_at_birth < math.inf:
            self.sink.go_on(None, why_repeated=_UNRECORDED, if_printed_before=self._end_of_youth())
        else:
            self.sink.go_on(cursor, why_repeated=why_repeated)
        self._keeper.add(self)
        await self._go_on_record(before, cursor)
        return cursor

    def end(self) -> None:
        """Keep no place any more: the event will have it."""
        self._keeper.drop(self)

    def fired(self) -> None:
        """Leave it to the event, which has the place; and to a later life if the triggerer stops before it has gone."""
        self._stop_owning_up()
        if self.has_begun:
            self._keeper.fired(self)

    async def leave(self, *, to_another: bool) -> None:
        """End before the event: write what waits, and keep the place for a later life.

        Args:
            to_another: another trigger may have the job already, and keeps its own place.
        """
        self.end()
        self._stop_owning_up()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_LINES):
                await self.sink.written()
        if self.has_begun and not to_another and not self._keeper.is_outdated():
            await self._keeper.keep_last(self)

    def _stop_owning_up(self) -> None:
        if self._owning_up is not None:
            self._owning_up.cancel()

    def _end_of_youth(self) -> str:
        """Return the time until which a life told of the log at once, before it was on record."""
        return (datetime.now(UTC) - timedelta(seconds=self._age() - YOUTH)).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _own_up(self) -> None:
        """Say so if an earlier life has told the beginning of the log, although this one took itself for the first."""
        before = await self._earlier_life()
        if before is not None and before.get("cursor"):
            told = before["cursor"]["timestamp"]
            self.sink.notice(f"── lines up to {told} are repeated above: another triggerer had told them before ──")
        await self._go_on_record(before, _cursor(before and before.get("cursor")))

    async def _go_on_record(self, before: dict[str, Any] | None, cursor: LogCursor | None) -> None:
        """Let a later life know that there was this one, and where it began."""
        told = (before or {}).get("tellers") or {}
        kept = list(told.items())[-_TELLERS:]
        self.tellers = {**dict(kept), self._keeper.name: cursor.to_dict() if cursor else None}
        await self._keeper.keep(self, cursor)

    async def _earlier_life(self) -> dict[str, Any] | None:
        """Return what an earlier life of this trigger has kept; None if there was none."""
        try:
            found = await self._keeper.kept(self)
        except Exception as error:  # noqa: BLE001 - without an answer, the log is told from its beginning, as repeated
            self._logger.warning("the place in the log is not known, Airflow did not answer: %s", error)
            return {"uid": self.uid, "cursor": None, "is_last": False}
        return found if found and found.get("uid") == self.uid else None


def start(before: dict[str, Any] | None, uid: str, teller: str = "") -> tuple[LogCursor | None, str]:
    """Return the line to go on after, and why lines behind it may be in the log already; empty if they are not.

    Airflow opens a triggerer's part of the log anew when a trigger comes back to it, as after two triggerers have been
    frozen in turn (3.3.2): what this one has told before is gone.

    Args:
        before: what was kept last; None if nothing was.
        uid: the job's: the place in another job's log is none in this one's.
        teller: whoever goes on, by its keeper's name; empty if it never told of a log before.
    """
    if not before or before.get("uid") != uid:
        return None, ""
    told = before.get("tellers") or {}
    if teller in told:
        return _cursor(told[teller]), "this triggerer had the job before, and began its part of the log anew"
    return _cursor(before.get("cursor")), "" if before.get("is_last") else "their last reader was killed"


def _cursor(fields: dict[str, Any] | None) -> LogCursor | None:
    return LogCursor.from_dict(fields) if fields else None
