"""Writes rank 0's lines and notices about the job to the task's log, through Airflow's own logger.

Each line is one record, written at once, as long as all jobs of the event loop stay below the limit of records (see
`rate_limiter`); above it, a job's pending lines are joined in one record. No line is dropped: a reader that is too fast
waits. Only states of progress bars that were overwritten are left out.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow.masking import masked
from ptjob_provider.airflow.task_log.rate_limiter import rate_limiters
from ptjob_provider.core.logs import StateFilter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ptjob_provider.core.logs import LogCursor, LogLine

MAX_RECORD = 32 * 1024
"""Maximum characters of one record; Airflow lost records of several megabytes (apache/airflow#66158)."""

MAX_WAITING = 256 * 1024
"""Approximate maximum bytes of one job's pending lines; 200 jobs have streams, see `[ptjob] max_log_streams`."""

CONTINUES = " …"
"""Mark at the end of a piece of a line that continues in the next record."""

_LINE_COST = 256
"""Bytes that a pending line counts in addition to its text."""

_LINES_IN_A_ROW = 10
"""Number of lines that the reader of one job hands over before other tasks of the loop have a turn."""


class TaskLog:
    """Sink (`rank0_log.Sink`) that writes to a logger. `cursor` is the position of the last line that it has written.

    Records are written in the context in which this object is created, because Airflow's logger takes from the context
    which task's log to write to.

    Args:
        logger: the task's logger.
    """

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._context = contextvars.copy_context()
        self._states = StateFilter()
        self._waiting: deque[tuple[str, LogCursor | None]] = deque()
        self._size = 0
        self._in_a_row = 0
        self._is_queued = False
        self._written: asyncio.Event | None = None
        self.cursor: LogCursor | None = None

    def continue_after(self, cursor: LogCursor | None, *, why_repeated: str = "") -> None:
        """Continue after the last line that an earlier run is known to have written.

        Args:
            cursor: position of that line.
            why_repeated: why the log may have lines after the cursor; empty if it has none.
        """
        self.cursor = cursor
        if why_repeated:
            since = cursor.timestamp if cursor else "the beginning"
            self.notice(f"── lines since {since} may be repeated: {why_repeated} ──")

    def line(self, line: LogLine) -> None:
        """Take one line, or one piece of a long one; few states of a line that overwrites itself are written."""
        for shown in self._states.take(line):
            self._take_line(shown)
        self._in_a_row += 1

    def notice(self, text: str) -> None:
        """Take one notice about the job."""
        self._take_rest()
        self._take(text, None)

    async def room(self) -> None:
        """Wait until more lines can be taken: until other tasks had a turn, and pending lines are few enough."""
        if self._in_a_row >= _LINES_IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)
        while self._size > MAX_WAITING:
            await self._next_record()

    async def written(self) -> None:
        """Wait until all pending lines are written."""
        self._take_rest()
        while self._waiting:
            await self._next_record()

    def flush(self) -> None:
        """Write all pending lines at once; only for an event loop that serves one job."""
        self._take_rest()
        is_queued = self._is_queued
        while self._waiting:
            self.write_record()
        self._is_queued = is_queued

    def write_record(self) -> bool:
        """Write at most one record; see `rate_limiter.Writer`."""
        texts: list[str] = []
        size, last = 0, self.cursor
        while self._waiting and (not texts or size + len(self._waiting[0][0]) <= MAX_RECORD):
            text, cursor = self._waiting.popleft()
            texts.append(text)
            size += len(text) + 1
            self._size -= len(text) + _LINE_COST
            last = cursor or last
        if texts:
            self._write("\n".join(texts), last)
        self._is_queued = bool(self._waiting)
        return self._is_queued

    def _take_rest(self) -> None:
        for line in self._states.rest():
            self._take_line(line)

    def _take_line(self, line: LogLine) -> None:
        whole = masked(line.text) if len(line.text) > MAX_RECORD else line.text  # half a secret is not known as one
        for text, continues, is_end in _pieces(whole, continues=line.continues):
            self._take(text + (CONTINUES if continues else ""), line.cursor if is_end else None)

    def _take(self, text: str, cursor: LogCursor | None) -> None:
        if not self._waiting and rate_limiters.get().take():
            self._write(text, cursor or self.cursor)
            return
        self._waiting.append((text, cursor))
        self._size += len(text) + _LINE_COST
        if not self._is_queued:
            self._is_queued = True
            rate_limiters.get().queue(self)

    def _write(self, text: str, cursor: LogCursor | None) -> None:
        # Airflow masks the task's log, but not the copy of it that LocalExecutor prints (observed on 3.3.2).
        try:
            self._context.run(self._logger.info, "%s", masked(text))
        finally:  # whoever waits for this record must not wait for ever if the logger fails
            if self._written is not None:
                self._written.set()
                self._written = None
        self.cursor = cursor

    async def _next_record(self) -> None:
        self._written = self._written or asyncio.Event()
        await self._written.wait()


def _pieces(text: str, *, continues: bool) -> Iterator[tuple[str, bool, bool]]:
    """Yield pieces that fit into a record: the text, whether its line continues, whether it is the last one."""
    for start in range(0, max(len(text), 1), MAX_RECORD):
        is_end = start + MAX_RECORD >= len(text)
        yield text[start : start + MAX_RECORD], continues or not is_end, is_end
