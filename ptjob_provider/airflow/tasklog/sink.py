"""Rank 0's lines and sentences about the job → the task's log, through Airflow's own logger.

A line is a record of its own, at once, as long as all jobs of the event loop stay below the ceiling of records (see
`records`); above it the lines that a job has waiting go into one. Nothing is shed: who reads too fast waits.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow.masking import masked
from ptjob_provider.airflow.tasklog.records import ceilings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ptjob_provider.airflow.tasklog.pulse import Pulse
    from ptjob_provider.airflow.tasklog.records import Ceiling
    from ptjob_provider.core.logs import LogCursor, LogLine

MAX_RECORD = 32 * 1024
"""Characters that one record holds at most; Airflow lost records of several megabytes (apache/airflow#66158)."""

MAX_WAITING = 1024 * 1024
"""What may wait of one job: bytes, about."""

MAX_WAITING_OF_ALL = 16 * MAX_WAITING
"""What may wait of all jobs of an event loop before each has to be content with its SHARE."""

SHARE = 64 * 1024
"""What may always wait of one job."""

TOLD_LATE = 15.0
"""Seconds for which two may write one log: Airflow tells a triggerer that was frozen and replaced within a second or
two, later on a busy machine (3.3.2)."""

CONTINUES = " …"
"""Ends a piece of a line that goes on in the next record."""

_LINE_COST = 256
"""Bytes that a waiting line takes besides its text."""

_LINES_IN_A_ROW = 10
"""How many lines one job's reader hands over before others have their turn."""


class TaskLog:
    """A sink (`rank0_log.Sink`) on a logger. `cursor` is the place of the last line that the logger was given.

    Records are written in the context that this is made in: Airflow's logger takes from it whose log they belong to.

    Args:
        logger: the task's.
        pulse: says when lines may have been written by another meanwhile. None: nobody takes over while this process
            lives.
    """

    def __init__(self, logger: Any, *, pulse: Pulse | None = None) -> None:
        self._logger = logger
        self._pulse = pulse
        self._standstills = pulse.standstills() if pulse else 0
        self._context = contextvars.copy_context()
        self._ceiling: Ceiling | None = None
        self._waiting: deque[tuple[str, LogCursor | None]] = deque()
        self._size = 0
        self._in_a_row = _LINES_IN_A_ROW
        self._is_queued = False
        self._written: asyncio.Event | None = None
        self._repeats_until = ""
        self._doubt: tuple[str, str] | None = None
        self._is_closed = False
        self.cursor: LogCursor | None = None

    def go_on(self, cursor: LogCursor | None, *, why_repeated: str = "", if_printed_before: str = "") -> None:
        """Go on after the last line that was given to the logger in an earlier life.

        Args:
            cursor: its place.
            why_repeated: why more lines than the cursor says may be in the log; empty if there are none.
            if_printed_before: RFC 3339; there are none if the next line was printed later than this. Empty: there may
                be some whenever it was printed.
        """
        self.cursor = cursor
        self._standstills = self._pulse.standstills() if self._pulse else 0
        if why_repeated and if_printed_before:
            self._doubt = why_repeated, if_printed_before
        elif why_repeated:
            self._mark_repeats(why_repeated)

    def line(self, line: LogLine) -> None:
        """Take one line, or one piece of a long one."""
        self._mark_a_standstill()
        self._settle_a_doubt(line)
        if self._repeats_until and line.timestamp[:19] > self._repeats_until[:19]:
            self._repeats_until = ""
            self.notice("── from here on nothing is repeated ──")
        for text, continues, is_end in _pieces(line.text, continues=line.continues):
            self._take(text + (CONTINUES if continues else ""), line.cursor if is_end else None)
        self._in_a_row += 1

    def notice(self, text: str) -> None:
        """Take one sentence about the job."""
        self._take(text, None)

    async def room(self) -> None:
        """Return when more lines can be taken: at once, unless too much waits, or others have waited long enough."""
        if self._ceiling is not None and self._in_a_row >= _LINES_IN_A_ROW:
            self._in_a_row = 0
            await self._ceiling.next_lines()
        while self._is_full():
            await self._next_record()

    async def written(self) -> None:
        """Return when everything has been given to the logger."""
        while self._waiting:
            await self._next_record()

    def flush(self) -> None:
        """Give the logger at once what it has not got yet; only where nobody shares the event loop."""
        is_queued = self._is_queued
        while self._waiting:
            self.write_record()
        self._is_queued = is_queued

    def write_record(self) -> bool:
        """Give the logger as much as one record holds; see `records.Writer`."""
        texts: list[str] = []
        size, last = 0, self.cursor
        while self._waiting and (not texts or size + len(self._waiting[0][0]) <= MAX_RECORD):
            text, cursor = self._waiting.popleft()
            texts.append(text)
            size += len(text) + 1
            self._hold(-len(text) - _LINE_COST)
            last = cursor or last
        if texts:
            self._tell("\n".join(texts), last)
        self._is_queued = bool(self._waiting)
        return self._is_queued

    def close(self) -> None:
        """Take no more lines: another process writes them from here on."""
        self._is_closed = True

    def _take(self, text: str, cursor: LogCursor | None) -> None:
        if self._is_closed:
            return
        self._ceiling = self._ceiling or ceilings.get()
        if not self._waiting and self._ceiling.take():
            self._tell(text, cursor or self.cursor)
            return
        self._waiting.append((text, cursor))
        self._hold(len(text) + _LINE_COST)
        if not self._is_queued:
            self._is_queued = True
            self._ceiling.queue(self)

    def _hold(self, more: int) -> None:
        self._size += more
        if self._ceiling is not None:
            self._ceiling.held += more

    def _is_full(self) -> bool:
        held = self._ceiling.held if self._ceiling else 0
        return self._size > (SHARE if held > MAX_WAITING_OF_ALL else MAX_WAITING)

    def _tell(self, text: str, cursor: LogCursor | None) -> None:
        # Airflow masks what it writes to the task's log, but not the copy that LocalExecutor prints (seen on 3.3.2).
        self._context.run(self._logger.info, "%s", masked(text))
        self.cursor = cursor
        if self._written is not None:
            self._written.set()
            self._written = None

    async def _next_record(self) -> None:
        self._written = self._written or asyncio.Event()
        await self._written.wait()

    def _mark_a_standstill(self) -> None:
        standstills = self._pulse.standstills() if self._pulse else 0
        if standstills > self._standstills:
            self._standstills = standstills
            self._mark_repeats("this process stood still, and another may have gone on")

    def _settle_a_doubt(self, line: LogLine) -> None:
        if self._doubt is not None:
            why, before = self._doubt
            self._doubt = None
            if line.timestamp[:19] <= before[:19]:
                self._mark_repeats(why)

    def _mark_repeats(self, why: str) -> None:
        until = datetime.now(UTC) + timedelta(seconds=TOLD_LATE)
        self._repeats_until = until.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.notice(f"── lines up to {self._repeats_until} may be repeated here: {why} ──")


def _pieces(text: str, *, continues: bool) -> Iterator[tuple[str, bool, bool]]:
    """Yield what fits into a record each: the text, whether its line goes on after it, whether it is the last one."""
    for start in range(0, max(len(text), 1), MAX_RECORD):
        is_end = start + MAX_RECORD >= len(text)
        yield text[start : start + MAX_RECORD], continues or not is_end, is_end
