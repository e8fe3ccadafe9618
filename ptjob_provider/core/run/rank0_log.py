"""Copy rank 0's log to the sink while the job is followed: from the stored cursor on, as fast as the sink accepts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from ptjob_provider.core.diagnosis.causes import bounded_tail
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.logs import LogCursor, last_state, nanoseconds
from ptjob_provider.core.shared import cancelled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.history import Termination
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.logs import LogLine
    from ptjob_provider.core.run.api_errors import ApiErrors
    from ptjob_provider.core.run.submit import Submission
    from ptjob_provider.core.run.training_state import TrainingState

    Start = LogCursor | Callable[[], Awaitable[LogCursor | None]] | None

logger = logging.getLogger(__name__)

TAIL_LINES = 200
TAIL_WIDTH = 500
"""Number of lines, and of characters per line, that are kept from the end of a replica's log for the diagnosis."""

_LAST_LINES_SPAN = timedelta(seconds=60)
"""Span before a run's end whose lines are read as its last lines. After an exception in one process, torchrun waits
up to 30 s for the other processes."""

_WHOLE_SECOND = timedelta(seconds=1)
"""Added to a container's end time, which has whole seconds: the container may have written later in that second."""

_REST_TIMEOUT = 60.0
"""Maximum seconds without a line while the rest of an ended job's log is read."""

_LAST_LINES_TIMEOUT = 5.0
"""Maximum seconds of each read for a diagnosis: meanwhile the job is neither observed nor stopped."""


class Sink(Protocol):
    """Destination of a followed job's output: the task's log."""

    def line(self, line: LogLine) -> None:
        """Take one line of rank 0's log."""

    def notice(self, text: str) -> None:
        """Take one sentence about the job."""

    async def room(self) -> None:
        """Wait until the sink can take more lines; called by the log reader only."""


@dataclass(kw_only=True)
class Rank0Log:
    """Background reader of rank 0's log.

    Attributes:
        backend: the back-end.
        submission: the job.
        sink: takes the lines.
        errors: retries refused requests.
        start: cursor of the last line that a sink has received, or a function that looks up this cursor when reading
            starts.
        mask: removes known secrets from the kept lines.
        on_resumed: called with the sentence about where the attempt went on, once it is known.
        state: takes the lines, too; None: nobody wants to know how far the training is.
        cursor: cursor of the last line that was passed to a sink; None if unknown or if there was none.
    """

    backend: Backend
    submission: Submission
    sink: Sink
    errors: ApiErrors
    start: Start
    mask: Callable[[str], str]
    on_resumed: Callable[[str], Awaitable[None]]
    state: TrainingState | None = None
    cursor: LogCursor | None = field(init=False)
    _tail: Tail = field(init=False)
    _reading: asyncio.Task[None] | None = None
    _knows_place: bool = False

    def __post_init__(self) -> None:
        self.cursor = None if callable(self.start) else self.start
        self._tail = Tail(self.mask)

    @property
    def tail(self) -> tuple[str, ...]:
        """Return the last lines of the last run, masked."""
        return self._tail.lines

    def begin(self) -> None:
        """Start reading the log, unless it is being read already."""
        self._reading = self._reading or asyncio.create_task(self._read())

    async def drain(self, seconds: float) -> None:
        """Wait for the end of the log; give up after `seconds` without a new line, counted once the cursor is known.

        Logs a notice that lines may be missing if the end was not reached.
        """
        self.begin()
        assert self._reading is not None  # noqa: S101 - begin() was called
        progresses = True
        while progresses and not self._reading.done():
            before = self._knows_place, self.cursor
            await asyncio.wait({self._reading}, timeout=seconds)
            progresses = not self._knows_place or before != (self._knows_place, self.cursor)
        if not self._reading.done():
            after = f" after {self.cursor.timestamp}" if self.cursor else ""
            self.sink.notice(
                f"{self.submission.ref}: rank 0's log did not end within {seconds:.0f} s of the job's end; what it "
                f"wrote{after} may be missing here"
            )

    async def end(self) -> None:
        """Stop reading; an unexpected error of the reader is logged, because the job has a verdict without its log."""
        for ended in await cancelled(*filter(None, [self._reading])):
            if isinstance(ended, Exception):
                ref = self.submission.ref
                logger.error("%s: rank 0's log could not be copied any more: %r", ref, ended, exc_info=ended)

    async def _read(self) -> None:
        self.cursor = await self.start() if callable(self.start) else self.start
        self._knows_place = True
        submission = self.submission
        logs = self.errors.stream(lambda: self.backend.logs(submission.ref, submission.rank0, since=self.cursor))
        try:
            async with contextlib.aclosing(logs):
                async for line in logs:
                    self.sink.line(line)
                    self.cursor = line.cursor
                    self._tail.take(line)
                    if self.state is not None and self.state.take(line) and (resumed := self.state.resumed()):
                        await self.on_resumed(resumed)
                    await self.sink.room()
        except PTJobError as error:
            self.sink.notice(f"{submission.ref}: rank 0's log cannot be read any more: {error}")


def run_of(line: LogLine) -> tuple[str, int]:
    """Return the pod uid and restart count of the run that wrote a line, as known when the line was read."""
    return line.cursor.pod_uid, line.cursor.restart_count


class Tail:
    """Collects the last lines of a replica's last run that has written lines.

    They are masked when somebody asks for them: masking each line of a fast log costs as much as parsing it.
    """

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._run: tuple[str, int] | None = None
        self._texts: deque[str] = deque(maxlen=TAIL_LINES)

    def take(self, line: LogLine) -> None:
        """Add a line; the first line of a run discards those of the previous run."""
        if line.notice:
            return
        if run_of(line) != self._run:
            self._run = run_of(line)
            self._texts.clear()
        text = last_state(line.text)
        self._texts.append(text if len(text) <= TAIL_WIDTH else self._masked(text))

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the lines, masked."""
        return tuple(self._masked(text) for text in self._texts)

    def _masked(self, text: str) -> str:
        return self._mask(text)[:TAIL_WIDTH]  # in this order: half a secret is not known as one


async def last_lines(backend: Backend, ref: JobRef, replica: str, *, mask: Callable[[str], str]) -> tuple[str, ...]:
    """Return the last lines of a replica's last run, masked, for the diagnosis.

    Fewer or none if the read fails, and none if it takes more than `_LAST_LINES_TIMEOUT`.
    """
    return await _last(backend.logs(ref, replica, follow=False), mask, is_past=lambda _: False)


async def last_lines_of_run(backend: Backend, ref: JobRef, end: Termination, *, mask: Callable[[str], str]) -> str:
    """Return the end of one run's log, masked and cut like a termination message; "" if it is no longer readable.

    Replaces the termination message for kinds whose pods have no FallbackToLogsOnError. A node keeps the log of a
    previous run only as long as the current run lasts. Lines after the run's end are of the next run and are ignored.
    """
    begin, over = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (end.ended_at - _LAST_LINES_SPAN, end.ended_at + _WHOLE_SECOND))
    run = (end.pod_uid, end.restart_count)
    since = LogCursor(
        pod_uid=end.pod_uid, container=end.container, restart_count=end.restart_count, timestamp=begin, ordinal=-1
    )

    def is_past(line: LogLine) -> bool:
        return run_of(line) != run or nanoseconds(line.timestamp) >= nanoseconds(over)

    lines = backend.logs(ref, end.replica, since=since, follow=False)
    return "\n".join(bounded_tail(await _last(lines, mask, is_past=is_past)))


async def with_last_lines(
    backend: Backend, ref: JobRef, why: Diagnosis | None, *, mask: Callable[[str], str]
) -> Diagnosis | None:
    """Return the diagnosis; adds the last lines of its replica if the diagnosis has none.

    Called before the job is deleted: its logs are unreadable afterwards, and for some kinds the pods' status does not
    contain the end of their logs. Takes at most `_LAST_LINES_TIMEOUT`.
    """
    if why is None or not why.replica or why.log_tail:
        return why
    return replace(why, log_tail=await last_lines(backend, ref, why.replica, mask=mask)).bounded()


async def _last(
    lines: AsyncGenerator[LogLine, None], mask: Callable[[str], str], *, is_past: Callable[[LogLine], bool]
) -> tuple[str, ...]:
    """Return the last lines before the first one that `is_past`, as far as they can be read in time."""
    tail = Tail(mask)
    try:
        async with asyncio.timeout(_LAST_LINES_TIMEOUT), contextlib.aclosing(lines):
            async for line in lines:
                if is_past(line):
                    break
                tail.take(line)
    except TimeoutError:  # the lines read so far are not the last ones
        return ()
    except PTJobError:
        pass
    return tail.lines


async def catch_up(backend: Backend, submission: Submission, *, sink: Sink, cursor: LogCursor | None) -> None:
    """Pass all existing lines after the cursor to the sink; log a notice if the log is no longer readable.

    Gives up after `_REST_TIMEOUT` without a line, because the job's outcome is known and waits for this.
    """
    clock = asyncio.get_running_loop().time
    lines = backend.logs(submission.ref, submission.rank0, since=cursor, follow=False)
    try:
        async with asyncio.timeout(_REST_TIMEOUT) as limit, contextlib.aclosing(lines):
            async for line in lines:
                sink.line(line)
                cursor = line.cursor
                await sink.room()
                limit.reschedule(clock() + _REST_TIMEOUT)
    except (PTJobError, TimeoutError) as error:
        why = str(error) or f"nothing came for {_REST_TIMEOUT:.0f} s"
        last = f"the last line that was read is of {cursor.timestamp}" if cursor else "no line had been read"
        sink.notice(f"{submission.ref}: the rest of rank 0's log cannot be read any more ({why}); {last}")
