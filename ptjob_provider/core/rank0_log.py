"""Rank 0's log while its job is followed: from where it was left, into the sink, as fast as the sink takes it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ptjob_provider.core.errors import PTJobError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ptjob_provider.core.api_errors import ApiErrors
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.logs import LogCursor, LogLine
    from ptjob_provider.core.submission import Submission

    Start = LogCursor | Callable[[], Awaitable[LogCursor | None]] | None

TAIL_LINES = 200
TAIL_WIDTH = 500
"""What is kept of a replica's last lines, for the diagnosis."""


class Sink(Protocol):
    """Where what is seen goes while a job is followed: the task's log."""

    def line(self, line: LogLine) -> None:
        """Take one line of rank 0's log."""

    def notice(self, text: str) -> None:
        """Take one sentence about the job."""

    async def room(self) -> None:
        """Return when more lines can be taken; whoever reads the log waits meanwhile, and nobody else."""


class Rank0Log:
    """One reading of rank 0's log.

    Args:
        backend: where the job is.
        submission: which job.
        sink: takes the lines.
        errors: waits out refusals.
        start: the last line that a sink has had before, or what finds it once the log is read.
        mask: takes known secrets out of what is kept.

    Attributes:
        cursor: the last line that a sink was given, as far as that is known; None if there was none.
        tail: the last lines, masked.
    """

    def __init__(
        self,
        backend: Backend,
        submission: Submission,
        *,
        sink: Sink,
        errors: ApiErrors,
        start: Start,
        mask: Callable[[str], str],
    ) -> None:
        self._backend = backend
        self._submission = submission
        self._sink = sink
        self._errors = errors
        self._start = start
        self._mask = mask
        self._reading: asyncio.Task[None] | None = None
        self._knows_place = False
        self.cursor: LogCursor | None = None if callable(start) else start
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)

    def begin(self) -> None:
        """Read from now on, unless it is being read."""
        self._reading = self._reading or asyncio.create_task(self._read())

    async def drain(self, seconds: float) -> None:
        """Wait for the end of the log as long as lines come; the time counts from where its place is known."""
        self.begin()
        assert self._reading is not None  # noqa: S101 - it has begun
        progresses = True
        while progresses and not self._reading.done():
            before = self._knows_place, self.cursor
            await asyncio.wait({self._reading}, timeout=seconds)
            progresses = not self._knows_place or before != (self._knows_place, self.cursor)
        if not self._reading.done():
            last = self.cursor.timestamp if self.cursor else "none was read"
            ref = self._submission.ref
            self._sink.notice(f"{ref}: the end of rank 0's log was waited for {seconds:.0f} s; last line: {last}")

    async def end(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    async def _read(self) -> None:
        self.cursor = await self._start() if callable(self._start) else self._start
        self._knows_place = True
        submission = self._submission
        logs = self._errors.stream(lambda: self._backend.logs(submission.ref, submission.rank0, since=self.cursor))
        try:
            async with contextlib.aclosing(logs):
                async for line in logs:
                    self._sink.line(line)
                    self.cursor = line.cursor
                    if not line.notice:
                        self.tail.append(self._mask(line.text)[:TAIL_WIDTH])
                    await self._sink.room()
        except PTJobError as error:
            self._sink.notice(f"{submission.ref}: rank 0's log cannot be read any more: {error}")


async def last_lines(backend: Backend, ref: JobRef, replica: str, *, mask: Callable[[str], str]) -> tuple[str, ...]:
    """Return the last lines of any replica, masked, for the diagnosis; as many as can be read."""
    last: deque[str] = deque(maxlen=TAIL_LINES)
    with contextlib.suppress(PTJobError):
        async for line in backend.logs(ref, replica, follow=False):
            if not line.notice:
                last.append(mask(line.text)[:TAIL_WIDTH])
    return tuple(last)


async def with_last_lines(
    backend: Backend, ref: JobRef, why: Diagnosis | None, *, mask: Callable[[str], str]
) -> Diagnosis | None:
    """Return why a job has to be ended with the last lines of the replica that is named, where it has none yet.

    Not every kind lets its pods leave the end of their log in their status; once the job is deleted nobody reads it.
    """
    if why is None or not why.replica or why.log_tail:
        return why
    return replace(why, log_tail=await last_lines(backend, ref, why.replica, mask=mask)).bounded()


async def catch_up(backend: Backend, submission: Submission, *, sink: Sink, cursor: LogCursor | None) -> None:
    """Hand over the lines after the cursor that are there now; says so if they cannot be read any more."""
    try:
        async for line in backend.logs(submission.ref, submission.rank0, since=cursor, follow=False):
            sink.line(line)
            await sink.room()
    except PTJobError as error:
        last = f"the last line that was read is of {cursor.timestamp}" if cursor else "no line had been read"
        sink.notice(f"{submission.ref}: the rest of rank 0's log cannot be read any more ({error}); {last}")
