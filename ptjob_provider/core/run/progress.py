"""Accumulate the observations of a followed job, and return sentences about what is new.

Pure. `follow` decides when to observe the job and when to stop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from ptjob_provider.core import diagnosis as diagnoses
from ptjob_provider.core import history, kinds
from ptjob_provider.core.backend import CURRENT
from ptjob_provider.core.diagnosis import Diagnosis, EndNotices, WaitingNotice
from ptjob_provider.core.history import peak_usage
from ptjob_provider.core.status import JobPhase, JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.backend import Observation, View
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.run.submit import Submission


_TRIES = 2
"""Maximum tries to read the log of one run; the log may be unavailable while the container restarts."""

_NOTICEABLE = timedelta(seconds=1)
"""Minimum time by which the starts of waits are moved; a view is always a moment old."""

_AT_ONCE = 8
"""Maximum runs whose log is read per observation; the cause of a failure is among the first runs that ended."""


@dataclass(frozen=True, kw_only=True)
class ProgressUpdate:
    """Changes since the previous observation.

    Attributes:
        sentences: sentences about the changes, for the log.
        has_ends: containers have ended since the previous observation, or pods of a running job are being removed.
    """

    sentences: tuple[str, ...] = ()
    has_ends: bool = False


@dataclass(kw_only=True, slots=True)
class JobProgress:
    """Accumulated state of one followed job; kept small, because one process may follow ten thousand jobs.

    Attributes:
        submission: the job, with its replicas as last observed.
        mask: removes known secrets from the output of programs.
        record: the pod history so far; None before the first observation.
        status: the job's status at the last observation.
        noted: the diagnosis written on the job, if any.
        used: the replicas' usage so far.
        deleted: the job has been deleted.
        runs: a replica ran at the last observation; for an ended job, `record.running` has the replicas that ran until
            its end.
        due: instant at which the job's own deadline passes; None if it has none, has not started or has ended.
        least: number of replicas with which an elastic job trains; None for all.
        waiting: the reason why the job waits, and which reasons were reported.
    """

    submission: Submission
    mask: Callable[[str], str]
    record: history.PodHistory | None = None
    status: JobStatus = field(default_factory=lambda: JobStatus(phase=JobPhase.PENDING))
    noted: Diagnosis | None = None
    used: Mapping[str, peak_usage.PeakUsage] = field(default_factory=dict)
    deleted: bool = False
    runs: bool = False
    due: datetime | None = None
    least: int | None = None
    waiting: WaitingNotice = field(default_factory=WaitingNotice)
    _tries: dict[str, int] = field(default_factory=dict)
    _unreported: set[str] = field(default_factory=set)
    _shape: tuple[int | None, Sequence[tuple[str, str]]] | None = None
    _kept: tuple[datetime, float] | None = None
    _end_notices: EndNotices = field(init=False)

    def __post_init__(self) -> None:
        self._end_notices = EndNotices(besides=self.submission.rank0)

    @property
    def pods(self) -> history.PodHistory:
        """Return the pod history; an empty one before the first observation."""
        return self.record or history.PodHistory()

    def counted(self, now: datetime, view: View) -> history.PodHistory:
        """Return the pod history for a later follower: with the instant up to which its waits were counted.

        Waits do not count while an elastic job has enough running replicas.
        """
        until = self.keep_time(now, view)
        counts_anew = until == history.EARLIEST or self.pods.has_enough(self.least)
        return replace(self.pods, counted_at=None if counts_anew else until)

    def keep_time(self, now: datetime, view: View) -> datetime:
        """Move the starts of all waits forward by the time in which nobody knew whether they lasted.

        Nobody knew it while a watch was refused or silent, or while this process was frozen. The computer's clock may
        have been set as well.

        Returns:
            The instant up to which the waits may be counted: now, or when the view was current last.
        """
        if math.isinf(view.age):
            return self._kept[0] if self._kept else history.EARLIEST
        seen_at = now - timedelta(seconds=view.age)
        before, live = self._kept or (seen_at, view.live)
        lived = view.live - live if view.live >= live else view.live  # the back-end may have begun at 0 again
        lost = seen_at - before - timedelta(seconds=lived)
        if self._kept is None or abs(lost) >= _NOTICEABLE:
            self._kept = seen_at, view.live
            self.record = self.record and self.record.postponed(lost)
        return now if view.age <= CURRENT else seen_at

    @property
    def has_begun(self) -> bool:
        """Return whether any pod may have run; a job that stayed suspended until its end has no log."""
        return self.status.started_at is not None or bool(self.pods.placed)

    @property
    def has_log(self) -> bool:
        """Return whether rank 0, which the job's first status may change, has started to run."""
        rank0, pods = self.submission.rank0, self.pods
        ended = (end.replica for end in pods.terminations)
        return self.status.is_taken_up and (rank0 in pods.running or rank0 in pods.finished or rank0 in ended)

    def take(self, observation: Observation, *, now: datetime) -> ProgressUpdate:
        """Add an observation, and return the changes since the previous one."""
        if observation.job is None:
            self.deleted, self.runs = True, False
            return ProgressUpdate()
        self.noted = Diagnosis.stored_in(observation.job)
        self.used = peak_usage.stored_in(observation.job)
        self.due = kinds.kind_of(observation.job).due_at(observation.job)
        self.least = kinds.kind_of(observation.job).least(observation.job)
        self._resize(observation.job)
        before = self.record or history.stored_in(observation.job).resumed(now)
        if before.has_enough(self.least):  # waits count from the moment in which too few replicas run
            before = before.begun_anew(now)
        replicas = len(self.submission.ranks) + len(kinds.unranked(observation.job))
        after = kinds.observe(before, observation.job, observation.pods, observation.events, now=now, replicas=replicas)
        after = self._masked(after)
        status = kinds.observed_status(observation.job, after)
        if self.status.phase.is_terminal and not status.phase.is_terminal:
            return ProgressUpdate()  # a watch that lags behind what was read
        sentences = tuple(self._changes(before, after, status))
        self.waiting.update(
            diagnoses.waiting_reason(after, status, replicas=replicas, rank0=self.submission.rank0), now
        )
        has_ends = after.terminations != before.terminations
        if not status.phase.is_terminal:  # an evicted pod is gone before a follower that was killed has a successor
            has_ends = has_ends or after.removals != before.removals
        self.runs = bool(after.running)
        if status.phase.is_terminal:  # the operator stops the replicas at the end; keep those that ran until then
            after = replace(after, running=before.running or after.running)
        self.record, self.status = after, status
        return ProgressUpdate(sentences=sentences, has_ends=has_ends)

    def _resize(self, job: Manifest) -> None:
        """Count the replicas again if the job's generation has changed, as each change of the spec does, or its steps.

        The status of a TrainJob shows these, and so which replica is rank 0.
        """
        shape = job["metadata"].get("generation"), kinds.controllers(job)
        if shape != self._shape:
            self._shape, self.submission = shape, self.submission.resized(job)
            self._end_notices.besides = self.submission.rank0

    def silent(self) -> tuple[history.Termination, ...]:
        """Return the failed runs without a termination message: their logs must be read before the pods are deleted."""
        ends = () if self.deleted else self.pods.silent_ends()
        return tuple(end for end in ends if self._tries.get(end.key, 0) < _TRIES)[:_AT_ONCE]

    def add_messages(self, ends: Sequence[history.Termination], messages: Sequence[str]) -> tuple[str, ...]:
        """Add the masked last lines of these runs, "" for none, and return sentences about the unreported ends."""
        for end in ends:
            self._tries[end.key] = self._tries.get(end.key, 0) + 1
        self.record = self.pods.with_messages({end.key: text for end, text in zip(ends, messages, strict=True)})
        unreported = [end for end in self.record.terminations if end.key in self._unreported]
        self._unreported.clear()
        return tuple(self._end_texts(unreported, self.status))

    def _end_texts(self, ends: Iterable[history.Termination], status: JobStatus) -> Iterator[str]:
        over_at = status.finished_at if status.phase is JobPhase.FAILED else None
        words = self._end_notices.of(ends, after_success=status.phase is JobPhase.SUCCEEDED, over_at=over_at)
        return (f"{self.submission.ref}: {text}" for text in words)

    def _changes(self, before: history.PodHistory, after: history.PodHistory, status: JobStatus) -> Iterator[str]:
        ref, reported = self.submission.ref, set(before.notices)
        yield from (f"{ref}: {text}" for text in after.notices if text not in reported)
        new, silent = after.new_terminations_since(before), {end.key for end in after.silent_ends()}
        self._unreported |= silent & {end.key for end in new}
        yield from self._end_texts((end for end in new if end.key not in silent), status)
        yield from (f"{ref}: {text}" for text in diagnoses.restarts_of(self.submission.rank0, before, after))
        if status.phase not in {self.status.phase, JobPhase.SUSPENDED}:  # a suspended job's wait is reported separately
            message = "" if status.phase is JobPhase.FAILED else status.message  # a failed job's diagnosis follows
            yield f"{ref} is {status.phase.value}" + (f": {message}" if message else "")
            if status.phase is JobPhase.SUCCEEDED and (late := diagnoses.never_ran(before, after)):
                yield f"{ref} has succeeded without replicas that never ran: {late}"

    def _masked(self, record: history.PodHistory) -> history.PodHistory:
        """Mask the termination messages before they are shortened, because a truncated secret cannot be recognized."""
        ends = tuple(replace(end, message=self.mask(end.message)) for end in record.terminations)
        return replace(record, terminations=ends)
