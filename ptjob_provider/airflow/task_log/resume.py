"""Resume the log of one task where an earlier process stopped, and store the position for a later one.

A trigger runs again in another process when its triggerer stops, dies or freezes. Nothing is requested or stored before
rank 0 has begun to write: a job that waits in a queue has no log cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow.task_log.cursor_store import CURSOR_KEY, cursor_stores
from ptjob_provider.airflow.task_log.sink import TaskLog
from ptjob_provider.core.logs import LogCursor
from ptjob_provider.core.run.rank0_log import catch_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from ptjob_provider.airflow.outcome import JobEvent
    from ptjob_provider.core.backend import Backend

YOUTH = 8.0
"""Seconds after its deferral in which a trigger counts as the first of its try.

Another triggerer takes over only after 30 s without a heartbeat, and a new triggerer needs more than YOUTH to start.
The first request of a new triggerer to Airflow may take 20 s on a busy machine, and the log must not wait for that.
"""

_WRITERS = 7
"""Number of earlier runs to remember; a process that has ended never comes back."""

_LAST_LINES = 2.0
"""Seconds that a triggerer's shutdown waits for pending lines; a later run reads the rest again."""


_UNRECORDED = "a reader that was killed early may have written them already"


class ResumableLog:
    """A task's log that a trigger writes, and resumes after an earlier run.

    Args:
        task_instance: the task.
        uid: the job's uid: the cursor of another job's log does not apply.
        logger: the task's logger.
        age: returns the seconds since the deferral.

    Attributes:
        has_begun: whether `cursor` is known: it was read from an earlier run, or there was no earlier run.
        writers: the processes that have written the log, by the names of their cursor stores, and the line
            after which each began.
    """

    def __init__(self, task_instance: Any, uid: str, *, logger: Any, age: Callable[[], float]) -> None:
        self.task_instance = task_instance
        self.uid = uid
        self._logger = logger
        self._age = age
        self._age_at_start = age()
        self._store = cursor_stores.get()
        self.has_begun = False
        self._late_check: asyncio.Task[None] | None = None
        self.sink = TaskLog(logger, freeze_detector=self._store.freeze_detector)
        self.writers: dict[str, Any] = {}

    @property
    def cursor(self) -> LogCursor | None:
        """The position of the last line that was written."""
        return self.sink.cursor

    async def begin(self) -> LogCursor | None:
        """Register this run, and return the line to resume after; called when rank 0 has a log to read."""
        if self._age() < YOUTH:
            self.has_begun = True
            self._store.add(self)
            self._late_check = asyncio.create_task(self._check_late())
            return None
        before = await self._earlier_run()
        cursor, why_repeated = start(before, self.uid, self._store.name)
        self.has_begun = True
        if before is None and YOUTH <= self._age_at_start < math.inf:
            self.sink.resume_after(None, why_repeated=_UNRECORDED, if_printed_before=self._end_of_youth())
        else:
            self.sink.resume_after(cursor, why_repeated=why_repeated)
        self._store.add(self)
        await self._register(before, cursor)
        return cursor

    def end(self) -> None:
        """Stop storing the cursor: the event will carry it."""
        self._store.drop(self)

    def fired(self) -> None:
        """Store the cursor only if the triggerer stops before Airflow has fetched the event, which carries it."""
        self._stop_late_check()
        if self.has_begun:
            self._store.fired(self)

    async def leave(self, *, to_another: bool) -> None:
        """End without an event: write pending lines, and store the cursor for a later run.

        Args:
            to_another: whether another trigger may already follow the job; it stores its own cursor.
        """
        self.end()
        self._stop_late_check()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_LINES):
                await self.sink.written()
        if self.has_begun and not to_another and not self._store.is_outdated():
            await self._store.save_last(self)

    def _stop_late_check(self) -> None:
        if self._late_check is not None:
            self._late_check.cancel()

    def _end_of_youth(self) -> str:
        """Return the time until which an earlier run may have written lines without being registered."""
        return (datetime.now(UTC) - timedelta(seconds=self._age() - YOUTH)).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _check_late(self) -> None:
        """Write a notice if this run counted as the first one, but an earlier run had written lines."""
        before = await self._earlier_run()
        if before is not None and before.get("cursor"):
            until = before["cursor"]["timestamp"]
            self.sink.notice(f"── lines up to {until} are repeated above: another triggerer had written them before ──")
        await self._register(before, _cursor(before and before.get("cursor")))

    async def _register(self, before: dict[str, Any] | None, cursor: LogCursor | None) -> None:
        """Register this run and the line at which it began, for later runs."""
        earlier = list(((before or {}).get("writers") or {}).items())[-_WRITERS:]
        self.writers = {**dict(earlier), self._store.name: cursor.to_dict() if cursor else None}
        await self._store.save(self, cursor)

    async def _earlier_run(self) -> dict[str, Any] | None:
        """Return what an earlier run of this trigger has stored; None if there was none."""
        try:
            stored = await self._store.load(self)
        except Exception as error:  # noqa: BLE001 - without a response, the log is repeated from its beginning
            self._logger.warning("the place in the log is not known, Airflow did not answer: %s", error)
            return {"uid": self.uid, "cursor": None, "is_last": False}
        return stored if stored and stored.get("uid") == self.uid else None


def start(before: dict[str, Any] | None, uid: str, writer: str = "") -> tuple[LogCursor | None, str]:
    """Return the line to resume after, and why later lines may be in the log already; empty if they are not.

    Airflow truncates a triggerer's part of the log when a trigger returns to that triggerer, for example after two
    triggerers were frozen in turn (3.3.2): the lines that this triggerer wrote before are lost.

    Args:
        before: the state stored last; None if there is none.
        uid: the job's uid: the cursor of another job's log does not apply.
        writer: the process that resumes, by the name of its cursor store; empty if it has never written a log.
    """
    if not before or before.get("uid") != uid:
        return None, ""
    writers = before.get("writers") or {}
    if writer in writers:
        return _cursor(writers[writer]), "this triggerer had the job before, and began its part of the log anew"
    return _cursor(before.get("cursor")), "" if before.get("is_last") else "their last reader was killed"


def _cursor(fields: dict[str, Any] | None) -> LogCursor | None:
    return LogCursor.from_dict(fields) if fields else None


async def add_rest_of_log(backend: Backend, event: JobEvent, *, task_instance: Any, logger: Any) -> None:
    """Add the lines after the last confirmed one; a notice says if they may be in the log already."""
    sink = TaskLog(logger)
    cursor = event.cursor
    if not event.knows_place:
        stored = task_instance.xcom_pull(key=CURSOR_KEY, map_indexes=task_instance.map_index)
        cursor, why_repeated = start(stored, event.submission.ref.uid)
        sink.resume_after(cursor, why_repeated=why_repeated)
    await catch_up(backend, event.submission, sink=sink, cursor=cursor)
    sink.flush()
