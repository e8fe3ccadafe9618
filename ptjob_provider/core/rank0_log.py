"""Rank 0's log while its job is followed: from where it was left, into the sink, as fast as the sink takes it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from ptjob_provider.core.diagnosis.verdict import bounded_tail
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.logs import LogCursor, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ptjob_provider.core.api_errors import ApiErrors
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.logs import LogLine
    from ptjob_provider.core.recorder import Termination
    from ptjob_provider.core.submission import Submission

    Start = LogCursor | Callable[[], Awaitable[LogCursor | None]] | None

TAIL_LINES = 200
TAIL_WIDTH = 500
"""What is kept of a replica's last lines, for the diagnosis."""

_LAST_WORDS = timedelta(seconds=60)
"""How long before a run's end its last lines begin: torchrun waits up to 30 s for its other processes after one has
raised."""

_WHOLE_SECOND = timedelta(seconds=1)
"""A container's end has whole seconds: it may have written in that second still."""

_READING_TIMEOUT = 10.0
"""Seconds that may be spent on reading them; nothing else of the job is looked at meanwhile."""


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
        """The last lines of the last run, masked."""
        return tuple(self._tail.lines)

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
            after = f" after {self.cursor.timestamp}" if self.cursor else ""
            self._sink.notice(
                f"{self._submission.ref}: rank 0's log did not end within {seconds:.0f} s of the job's end; what it "
                f"wrote{after} may be missing here"
            )

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
                    self._tail.take(line)
                    await self._sink.room()
        except PTJobError as error:
            self._sink.notice(f"{submission.ref}: rank 0's log cannot be read any more: {error}")


def run_of(line: LogLine) -> tuple[str, int]:
    """Return which run of which pod has written a line, as far as that was known when it was read."""
    return line.cursor.pod_uid, line.cursor.restart_count


class Tail:
    """The last lines of a replica's last run that has written any, masked."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._run: tuple[str, int] | None = None
        self.lines: deque[str] = deque(maxlen=TAIL_LINES)

    def take(self, line: LogLine) -> None:
        """Add a line; those of the run before go with the first one of the next."""
        if line.notice:
            return
        if run_of(line) != self._run:
            self._run = run_of(line)
            self.lines.clear()
        self.lines.append(self._mask(line.text)[:TAIL_WIDTH])


async def last_lines(backend: Backend, ref: JobRef, replica: str, *, mask: Callable[[str], str]) -> tuple[str, ...]:
    """Return the last lines of the last run of any replica, masked, for the diagnosis; as many as can be read."""
    tail = Tail(mask)
    with contextlib.suppress(PTJobError):
        async for line in backend.logs(ref, replica, follow=False):
            tail.take(line)
    return tuple(tail.lines)


async def last_words(backend: Backend, ref: JobRef, end: Termination, *, mask: Callable[[str], str]) -> str:
    """Return the end of one run's log, masked, as a termination message has it; "" if it cannot be read any more.

    Not every kind lets its pods leave it in their status, and a node keeps the log of the last run but one only as
    long as the last one lasts. Lines that came after the run's end are the next run's, taken for this one's.
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
    except TimeoutError:  # these are not its last ones
        return ""
    except PTJobError:
        pass
    return "\n".join(bounded_tail(tuple(tail.lines)))


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
