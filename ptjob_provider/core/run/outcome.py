"""The result of following a job, which is passed between processes, and the error that is raised for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.diagnosis import Diagnosis, failed_replicas_text
from ptjob_provider.core.errors import JobDeleted, JobFailed, JobTimedOut, OutputsNotVerified
from ptjob_provider.core.logs import LogCursor
from ptjob_provider.core.run.attempts import summary
from ptjob_provider.core.status import JobStatus, later

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    from ptjob_provider.core.identity import JobRef


class Outcome(StrEnum):
    """Outcome of following a job."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    DELETED = "Deleted"
    UNVERIFIED = "Unverified"
    """The job succeeded, but its outputs could not be inspected."""


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """Result of following a job; can be passed between processes.

    Attributes:
        outcome: the outcome.
        status: the last status of the job's object.
        diagnosis: the cause of the failure; None if the job succeeded.
        result: the value of `result.build_result`; None if the outputs could not be inspected.
        cursor: cursor of the last log line that was passed to the sink; None if there was none.
        detail: for UNVERIFIED, the reason why the outputs could not be inspected.
        is_open: the job could not be stopped and may go on; its attempt is not over.
        progress: how far the training came, and its replicas, see `training_state.TrainingState`; {} if unknown.
    """

    outcome: Outcome
    status: JobStatus
    diagnosis: Diagnosis | None = None
    result: Mapping[str, Any] | None = None
    cursor: LogCursor | None = None
    detail: str = ""
    is_open: bool = False
    progress: Mapping[str, Any] = field(default_factory=dict)

    def summary(self, ref: JobRef) -> dict[str, Any]:
        """Return what later attempts tell about this one, see `attempts.summary`."""
        return summary(
            ref,
            attempt=(self.result or {}).get("attempt", 1),
            status=self.status,
            outcome=self.outcome.value,
            why=self.diagnosis,
            reported={**self.progress, "last_step": self.progress.get("step")},
            resumed=self.progress.get("resumed", ""),
        )

    @property
    def preemptions(self) -> Sequence[Mapping[str, Any]]:
        """Return the ends by the platform up to this job, see `JobResult`; also this job's own, if it was one."""
        return (self.result or {}).get("preemptions") or ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields for a trigger's event."""
        return {
            "outcome": self.outcome.value,
            "status": self.status.to_dict(),
            "diagnosis": self.diagnosis.to_dict() if self.diagnosis else None,
            "result": dict(self.result) if self.result is not None else None,
            "cursor": self.cursor.to_dict() if self.cursor else None,
            "detail": self.detail,
            "is_open": self.is_open,
            "progress": dict(self.progress),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild the outcome from `to_dict`'s value; a missing key raises KeyError, an unknown outcome ValueError."""
        return cls(
            outcome=Outcome(fields["outcome"]),
            status=JobStatus.from_dict(fields["status"]),
            diagnosis=Diagnosis.from_dict(fields["diagnosis"]) if fields["diagnosis"] else None,
            result=fields["result"],
            cursor=LogCursor.from_dict(fields["cursor"]) if fields["cursor"] else None,
            detail=fields["detail"],
            is_open=fields.get("is_open", False),  # older versions write neither this nor the next
            progress=fields.get("progress") or {},
        )


def raise_for(ref: JobRef, outcome: JobOutcome, *, deletes: bool = False, shown: Collection[str] = ()) -> None:
    """Raise the error for a job's outcome; return if the job succeeded with valid outputs.

    Args:
        ref: the job.
        outcome: the result of following the job.
        deletes: a failed job is about to be deleted together with its log.
        shown: lines already printed above the error; the error does not repeat last lines that are among them.

    Raises:
        OutputsNotVerified: the job succeeded, but its outputs could not be inspected.
        JobFailed, JobTimedOut, JobDeleted: the job did not succeed.
    """
    if outcome.outcome is Outcome.SUCCEEDED:
        return
    if outcome.outcome is Outcome.UNVERIFIED:
        raise OutputsNotVerified(
            f"{ref} succeeded, but its outputs could not be looked at: {outcome.detail}. "
            "A retry verifies them again if the job is still there, and does not train again."
        )
    kinds = {Outcome.TIMED_OUT: JobTimedOut, Outcome.DELETED: JobDeleted}
    error = kinds.get(outcome.outcome, JobFailed)
    why = outcome.diagnosis or Diagnosis.unknown()
    raise error(ref, outcome.status, (why.without_log() if deletes else why).without_lines(shown))


def success_text(ref: JobRef, result: Mapping[str, Any]) -> str:
    """Return the last sentence about a job that succeeded; it names the replicas that failed, as rank 0 alone decides.

    Args:
        ref: the job.
        result: the value of `result.build_result`, written by this version of the package or an older one.
    """
    failed = failed_replicas_text(result.get("failed_replicas") or ())
    return f"{ref} succeeded, but {failed}" if failed else f"{ref} succeeded"


def deadline_after(started_at: datetime | None, timeout: timedelta | None) -> datetime | None:
    """Return the instant at which a timeout that began at `started_at` ends; None if either is None, or for never."""
    return later(started_at, timeout.total_seconds()) if started_at and timeout else None
