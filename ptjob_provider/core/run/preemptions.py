"""Decide whether a job that the platform has ended gets a new attempt, and when. Pure.

    end of the job                                      max_preemptions     what follows
    -------------------------------------------------   -----------------   ---------------------------------------
    success, or a failure that the platform did not     any                 the outcome is reported
    cause: `Diagnosis.by_platform`
    by the platform                                     0                   the outcome is reported
    by the platform, at most `max_preemptions` times    1 or more           the next attempt, after `pause_after`
    by the platform, once more                          1 or more           the failure, which says so

A job that its queue stops and starts again has not ended. The ends are counted since the task's last clear.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from datetime import datetime

    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.run.submit import Submission

_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0
"""Seconds between the end of the second attempt and the third, and the maximum: each pause is twice the one before."""


def pause_after(count: int) -> float:
    """Return the seconds between the end that is the platform's `count`th, from 1, and the next attempt."""
    return 0.0 if count < 2 else min(_FIRST_PAUSE * 2.0 ** (count - 2), _LONGEST_PAUSE)  # noqa: PLR2004


def is_preempted(submission: Submission, outcome: JobOutcome) -> bool:
    """Return whether the platform has ended this job; one that was given up and left in place has not ended."""
    has_failed = outcome.outcome is Outcome.FAILED and outcome.status.phase is JobPhase.FAILED
    return has_failed and len(outcome.preemptions) > len(submission.preemptions)


def next_attempt_at(
    submission: Submission, outcome: JobOutcome, *, max_preemptions: int | None, now: datetime
) -> datetime | None:
    """Return when the next attempt begins; None if this outcome is to be reported.

    The pause counts from the end of the job, so that whoever takes over meanwhile waits for the rest of it only.
    """
    count = len(outcome.preemptions)
    if not is_preempted(submission, outcome) or count > (max_preemptions or 0):
        return None
    pause = timedelta(seconds=pause_after(count))
    return min(now + pause, (outcome.status.finished_at or now) + pause)


def sentence(ref: JobRef, outcome: JobOutcome, *, due: datetime, now: datetime, max_preemptions: int | None) -> str:
    """Return what is logged about a job that gets a new attempt."""
    why = outcome.diagnosis or Diagnosis.unknown()
    seconds = (due - now).total_seconds()
    when = f"in {seconds:.0f} s" if seconds > 0 else "at once"
    count = f"{len(outcome.preemptions)} of at most {max_preemptions}"
    return f"{ref} was ended by the platform: {why.failure(ref)}. Its next attempt follows {when} (preemption {count})"


def used_up(submission: Submission, outcome: JobOutcome, *, max_preemptions: int | None) -> JobOutcome:
    """Return the outcome to report of a job without a next attempt; one that the platform ended says why."""
    if not max_preemptions or not is_preempted(submission, outcome):
        return outcome
    why, count = outcome.diagnosis or Diagnosis.unknown(), len(outcome.preemptions)
    text = f"the platform ended it {count} times, and max_preemptions={max_preemptions} allows no further attempt"
    return replace(outcome, diagnosis=replace(why, summary=f"{why.summary}; {text}"))


def overdue(outcome: JobOutcome) -> JobOutcome:
    """Return the outcome to report of a job whose deadline passes before its next attempt begins."""
    before = outcome.diagnosis or Diagnosis.unknown()
    why = Diagnosis.of(Cause.TIMED_OUT, f"{before.summary}; its deadline passes before the next attempt begins")
    return replace(outcome, outcome=Outcome.TIMED_OUT, diagnosis=replace(why, replica=before.replica))
