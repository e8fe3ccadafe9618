"""What is known of a job that is followed: taken from one look after the other, with what is new in it for people.

Pure. When to look, and what ends the following, the runner decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ptjob_provider.core import diagnosis as diagnoses
from ptjob_provider.core import kinds, measured, recorder
from ptjob_provider.core.diagnosis import Diagnosis, LastWords, WaitingNotice
from ptjob_provider.core.resizing import Size
from ptjob_provider.core.status import JobPhase, JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.backend import Observation
    from ptjob_provider.core.submission import Submission

_TRIES = 2
"""How often the log of one run is asked for: it may not be served while its container is being started again."""

_AT_ONCE = 8
"""Of how many runs the log is asked for in one look: the cause of a failure is among the first that ended."""


@dataclass(frozen=True, kw_only=True)
class News:
    """What one look has added.

    Attributes:
        sentences: for people, about the job.
        has_ends: whether containers have ended since the look before.
    """

    sentences: tuple[str, ...] = ()
    has_ends: bool = False


@dataclass(kw_only=True, slots=True)
class Known:
    """One job, as far as it has been seen; ten thousand may wait in one process.

    Attributes:
        submission: which job; with the replicas that it had when it was last seen.
        mask: takes known secrets out of what programs said.
        record: its story so far; None before the first look.
        status: as of the last look.
        noted: why it failed, if that has been written on it.
        used: what its replicas used so far.
        deleted: it has gone.
        runs: whether a replica ran at the last look; `record.running` keeps what ran until the job's end.
        due: when its own deadline is over; None if it has none, has not started or has ended.
        waiting: what it waits for.
    """

    submission: Submission
    mask: Callable[[str], str]
    record: recorder.Record | None = None
    status: JobStatus = field(default_factory=lambda: JobStatus(phase=JobPhase.PENDING))
    noted: Diagnosis | None = None
    used: Mapping[str, measured.Use] = field(default_factory=dict)
    deleted: bool = False
    runs: bool = False
    due: datetime | None = None
    waiting: WaitingNotice = field(default_factory=WaitingNotice)
    _asked: dict[str, int] = field(default_factory=dict)
    _untold: set[str] = field(default_factory=set)
    _size: Size = field(default_factory=Size)
    _last_words: LastWords = field(init=False)

    def __post_init__(self) -> None:
        self._last_words = LastWords(besides=self.submission.rank0)

    @property
    def story(self) -> recorder.Record:
        """The record; an empty one before the first look."""
        return self.record or recorder.Record()

    @property
    def has_begun(self) -> bool:
        """Whether any pod may have run; a job that was suspended to its end has no log."""
        return self.status.started_at is not None or bool(self.story.placed)

    @property
    def has_log(self) -> bool:
        """Whether rank 0 has begun to run."""
        rank0, story = self.submission.rank0, self.story
        ended = (end.replica for end in story.terminations)
        return rank0 in story.running or rank0 in story.finished or rank0 in ended

    def take(self, seen: Observation, *, now: datetime) -> News:
        """Know what is seen, and return what is new."""
        if seen.job is None:
            self.deleted, self.runs = True, False
            return News()
        self.noted = Diagnosis.stored_in(seen.job)
        self.used = measured.stored_in(seen.job)
        self.due = kinds.due_at(seen.job)
        self.submission = self._size.of(seen.job, self.submission)
        before = self.record or recorder.stored_in(seen.job)
        replicas = len(self.submission.ranks)
        after = kinds.observe(before, seen.job, seen.pods, seen.events, now=now, replicas=replicas)
        after = self._masked(after)
        status = kinds.status_seen(seen.job, after)
        sentences = tuple(self._changes(before, after, status))
        self.waiting.see(diagnoses.waiting_reason(after, status, replicas=replicas, rank0=self.submission.rank0), now)
        has_ends = after.terminations != before.terminations
        self.runs = bool(after.running)
        if status.phase.is_terminal:  # what ran until then; the operator stops it at the same moment
            after = replace(after, running=before.running or after.running)
        self.record, self.status = after, status
        return News(sentences=sentences, has_ends=has_ends)

    def silent(self) -> tuple[recorder.Termination, ...]:
        """Return the failed runs of which the log should be read now: their pods hold none of it, and may go."""
        ends = () if self.deleted else self.story.silent_ends()
        return tuple(end for end in ends if self._asked.get(end.key, 0) < _TRIES)[:_AT_ONCE]

    def hear(self, asked: Sequence[recorder.Termination], messages: Sequence[str]) -> tuple[str, ...]:
        """Take the last lines of the runs that were asked for, masked, "" for none; return what is new for people."""
        for end in asked:
            self._asked[end.key] = self._asked.get(end.key, 0) + 1
        self.record = self.story.with_messages({end.key: text for end, text in zip(asked, messages, strict=True)})
        untold = [end for end in self.record.terminations if end.key in self._untold]
        self._untold.clear()
        return tuple(self._words(untold, self.status))

    def _words(self, ends: Iterable[recorder.Termination], status: JobStatus) -> Iterator[str]:
        words = self._last_words.of(ends, after_success=status.phase is JobPhase.SUCCEEDED)
        return (f"{self.submission.ref}: {text}" for text in words)

    def _changes(self, before: recorder.Record, after: recorder.Record, status: JobStatus) -> Iterator[str]:
        ref, told = self.submission.ref, set(before.notices)
        yield from (f"{ref}: {text}" for text in after.notices if text not in told)
        new, silent = after.new_terminations_since(before), {end.key for end in after.silent_ends()}
        self._untold |= silent & {end.key for end in new}
        yield from self._words((end for end in new if end.key not in silent), status)
        if status.phase not in {self.status.phase, JobPhase.SUSPENDED}:  # which says why, a moment later
            yield f"{ref} is {status.phase.value}" + (f": {status.message}" if status.message else "")

    def _masked(self, record: recorder.Record) -> recorder.Record:
        """Mask what programs said last, before anything is shortened: half of a secret is not recognised any more."""
        ends = tuple(replace(end, message=self.mask(end.message)) for end in record.terminations)
        return replace(record, terminations=ends)
