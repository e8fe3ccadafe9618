"""Stream rank 0's log into the sink while its job is followed, from the stored cursor, at the sink's pace."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from ptjob_provider.core.diagnosis.causes import bounded_tail
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.logs import LogCursor, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.history import Termination
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.logs import LogLine
    from ptjob_provider.core.run.api_errors import ApiErrors
    from ptjob_provider.core.run.submit import Submission

    Start = LogCursor | Callable[[], Awaitable[LogCursor | None]] | None

TAIL_LINES = 200
TAIL_WIDTH = 500
"""Lines, and characters per line, kept from the end of a replica's log for the diagnosis."""

_LAST_WORDS = timedelta(seconds=60)
"""Seconds before a run's end at which its last lines begin: after one process has raised, torchrun waits up to 30 s for
the others."""

_WHOLE_SECOND = timedelta(seconds=1)
"""Container end times have whole seconds: the container may still have written within that second."""

_READING_TIMEOUT = 10.0
"""Time limit for reading them, in seconds; the job is not observed meanwhile."""


class Sink(Protocol):
    """Destination of a followed job's output: the task's log."""

    def line(self, line: LogLine) -> None:
        """Take one line of rank 0's log."""

    def notice(self, text: str) -> None:
        """Take one sentence about the job."""

    async def room(self) -> None:
        """Wait until more lines can be taken; only the log reader waits."""


class Rank0Log:
    """A reader of rank 0's log.

    Args:
        backend: the back-end.
        submission: the job.
        sink: takes the lines.
        errors: retries refused requests.
        start: the last line that a sink has received, or a function that looks it up once the log is read.
        mask: removes known secrets from the kept lines.

    Attributes:
        cursor: the last line passed to a sink, if known; None for none.
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
        self._tail = Tail(mask)
        self._reading: asyncio.Task[None] | None = None
        self._knows_place = False
        self.cursor: LogCursor | None = None if callable(start) else start

    @property
    def tail(self) -> tuple[str, ...]:
        """Return the last lines of the last run, masked."""
        return tuple(self._tail.lines)

    def begin(self) -> None:
        """Start reading unless already reading."""
        self._reading = self._reading or asyncio.create_task(self._read())

    async def drain(self, seconds: float, *, is_read: bool = False) -> None:
        """Wait for the end of the log while lines arrive; the timeout starts once the cursor is known.

        Without an end, log a notice about missing lines, unless `is_read`: then there were none to come.
        """
        self.begin()
        assert self._reading is not None  # noqa: S101 - begin() was called
        progresses = True
        while progresses and not self._reading.done():
            before = self._knows_place, self.cursor
            await asyncio.wait({self._reading}, timeout=seconds)
            progresses = not self._knows_place or before != (self._knows_place, self.cursor)
        if not self._reading.done() and not is_read:
            after = f" after {self.cursor.timestamp}" if self.cursor else ""
            self._sink.notice(
                f"{self._submission.ref}: rank 0's log did not end within {seconds:.0f} s of the job's end; what it "
                f"wrote{after} may be missing here"
            )

    async def is_read(self) -> bool:
        """Return whether the log has no line after the cursor now; False if it is unreadable."""
        ref, rank0 = self._submission.ref, self._submission.rank0
        try:
            async with contextlib.aclosing(self._backend.logs(ref, rank0, since=self.cursor, follow=False)) as lines:
                async for line in lines:
                    if not line.notice:
                        return False
        except PTJobError:
            return False
        return True

    async def end(self) -> None:
        """Stop reading."""
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
                    self._tail.take(line)
                    await self._sink.room()
        except PTJobError as error:
            self._sink.notice(f"{submission.ref}: rank 0's log cannot be read any more: {error}")


def run_of(line: LogLine) -> tuple[str, int]:
    """Return the run and pod that wrote a line, as far as known when it was read."""
    return line.cursor.pod_uid, line.cursor.restart_count


class Tail:
    """Last lines of a replica's last run that wrote any, masked."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._run: tuple[str, int] | None = None
        self.lines: deque[str] = deque(maxlen=TAIL_LINES)

    def take(self, line: LogLine) -> None:
        """Add a line; the first line of a run discards those of the previous run."""
        if line.notice:
            return
        if run_of(line) != self._run:
            self._run = run_of(line)
            self.lines.clear()
        self.lines.append(self._mask(line.text)[:TAIL_WIDTH])


async def last_lines(backend: Backend, ref: JobRef, replica: str, *, mask: Callable[[str], str]) -> tuple[str, ...]:
    """Return the last lines of a replica's last run, masked, for the diagnosis; as many as are readable."""
    tail = Tail(mask)
    with contextlib.suppress(PTJobError):
        async for line in backend.logs(ref, replica, follow=False):
            tail.take(line)
    return tuple(tail.lines)


async def last_lines_of_run(backend: Backend, ref: JobRef, end: Termination, *, mask: Callable[[str], str]) -> str:
    """Return the end of one run's log, masked, like a termination message; "" if it is no longer readable.

    Some kinds do not let pods put it into their status, and a node keeps a previous run's log only as long as the
    current run lasts. Lines after the run's end belong to the next run and are ignored.
    """
    begin, over = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (end.ended_at - _LAST_WORDS, end.ended_at + _WHOLE_SECOND))
    run, tail = (end.pod_uid, end.restart_count), Tail(mask)
    place = LogCursor(
        pod_uid=end.pod_uid, container=end.container, restart_count=end.restart_count, timestamp=begin, ordinal=-1
    )
    try:
        async with (
            asyncio.timeout(_READING_TIMEOUT),
            contextlib.aclosing(backend.logs(ref, end.replica, since=place, follow=False)) as lines,
        ):
            async for line in lines:
                if run_of(line) != run or nanoseconds(line.timestamp) >= nanoseconds(over):
                    break
                tail.take(line)
    except TimeoutError:  # these are not its last lines
        return ""
    except PTJobError:
        pass
    return "\n".join(bounded_tail(tuple(tail.lines)))


async def with_last_lines(
    backend: Backend, ref: JobRef, why: Diagnosis | None, *, mask: Callable[[str], str]
) -> Diagnosis | None:
    """Return the diagnosis with the last lines of its replica, if it lacks them.

    Some kinds do not let pods put the end of their log into their status; after the job's deletion it is unreadable.
    """
    if why is None or not why.replica or why.log_tail:
        return why
    return replace(why, log_tail=await last_lines(backend, ref, why.replica, mask=mask)).bounded()


async def catch_up(backend: Backend, submission: Submission, *, sink: Sink, cursor: LogCursor | None) -> None:
    """Pass the existing lines after the cursor to the sink; log a notice if they are no longer readable."""
    try:
        async for line in backend.logs(submission.ref, submission.rank0, since=cursor, follow=False):
            sink.line(line)
            await sink.room()
    except PTJobError as error:
        last = f"the last line that was read is of {cursor.timestamp}" if cursor else "no line had been read"
        sink.notice(f"{submission.ref}: the rest of rank 0's log cannot be read any more ({error}); {last}")
