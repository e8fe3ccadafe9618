"""Report how a try ended: the trigger's event to the resumed task, the log for people, XComs for programs."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.airflow.compat import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    TaskDeferralError,
)
from ptjob_provider.airflow.masking import masked, with_texts_masked
from ptjob_provider.airflow.task_log.progress_store import PROGRESS, xcom_value
from ptjob_provider.core.diagnosis import Cause
from ptjob_provider.core.errors import JobFailed, PTJobError
from ptjob_provider.core.logs import LogCursor
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.run.outcome import JobOutcome, success_text
from ptjob_provider.core.run.submit import Submission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.identity import JobRef


class TriggerFailed(PTJobError):
    """The trigger could not follow the job, and left it unchanged."""

    cause = "trigger_failed"

    def __init__(self, text: str, *, retryable: bool) -> None:
        super().__init__(text)
        self.retryable = retryable


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """A trigger's report: how the job ended, or why that is unknown.

    Attributes:
        submission: the job.
        outcome: how it ended; None if the trigger failed.
        error: why the trigger failed; empty if it did not.
        retryable: whether another try may succeed where the trigger failed.
        cursor: the last log line that is in the task's log.
        knows_place: whether `cursor` is known; False if the cursor of an earlier trigger could not be read.
    """

    submission: Submission
    outcome: JobOutcome | None = None
    error: str = ""
    retryable: bool = True
    cursor: LogCursor | None = None
    knows_place: bool = False

    def to_dict(self, tell: Callable[[str], None] | None = None) -> dict[str, Any]:
        """Return JSON-safe fields; known secrets are masked, because Airflow's database stores the event.

        `tell` takes a sentence about values that had to be replaced, see `outgoing`.
        """
        fields = {
            "submission": self.submission.to_dict(),
            "conclusion": with_texts_masked(self.outcome.to_dict()) if self.outcome else None,
            "error": masked(self.error),
            "retryable": self.retryable,
            "cursor": self.cursor.to_dict() if self.cursor else None,
            "knows_place": self.knows_place,
        }
        return dict(outgoing(fields, tell))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> Self:
        """Rebuild what `to_dict` returned.

        Raises:
            PTJobError: there is no event, or it is not a `JobEvent`.
        """
        if not fields or not {"submission", "conclusion", "error", "retryable", "cursor", "knows_place"} <= set(fields):
            text = f"{fields!r:.200}"
            raise PTJobError(f"Unexpected trigger event: {text}. Check whether the job still runs: ptjob list")
        return cls(
            submission=Submission.from_dict(fields["submission"]),
            outcome=JobOutcome.from_dict(fields["conclusion"]) if fields["conclusion"] else None,
            error=fields["error"],
            retryable=fields["retryable"],
            cursor=LogCursor.from_dict(fields["cursor"]) if fields["cursor"] else None,
            knows_place=fields["knows_place"],
        )

    def required_outcome(self) -> JobOutcome:
        """Return the outcome of following.

        Raises:
            TriggerFailed: there is none.
        """
        if self.outcome is None:
            raise TriggerFailed(self.error, retryable=self.retryable)
        return self.outcome


DIAGNOSIS = "diagnosis"
"""XCom key of the reason for a failure: {cause, replica, advice, retryable, attempt, message}."""

USAGE = "usage"
"""XCom key of the job's usage, pushed however the job ended: `_USED`, and {replicas, left_out} of `usage`."""

PREEMPTIONS = "preemptions"
"""XCom key of the ends by the platform, [{node, cause, seconds_lost}], pushed however the job ended; none, if none."""

MODEL_URI, TFEVENTS_URI = "model_uri", "tfevents_uri"
"""XCom keys of the outputs' addresses of a job that succeeded."""

METRIC = "metric_"
"""Prefix of the XCom key of a scalar's last value."""

MOST_METRICS = 32
"""Maximum number of scalars pushed as XComs: each is a row in Airflow's database, and a request. The result has all."""

_USED = ("queue_seconds", "run_seconds", "restarts", "gpu_seconds", "gpu_seconds_lost")
_LONGEST = 200
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (AirflowTaskTimeout, "timed_out"),
    (TaskDeferralError, "trigger_failed"),
)


class TaskStopped(AirflowException):
    """The task was told to stop, by a person or by a worker that shuts down."""

    cause = "stopped"


class SensedFailure(AirflowFailException):
    """The job that a sensor waits for failed; a retry would have the same result."""

    def __init__(self, ref: JobRef, diagnosis: Diagnosis) -> None:
        super().__init__(masked(diagnosis.report(ref)))
        self.diagnosis = diagnosis


class SensedReplacement(AirflowFailException):
    """The job that a sensor waits for is gone, and its outcome is unknown."""

    cause = Cause.DELETED.value


@dataclass(kw_only=True)
class FailureReport:
    """Facts about the job for a failure report; the caller sets them as soon as they are known.

    Attributes:
        attempt: number of the task's attempt; None: not known yet.
        result: return value of `build_result`; None: the job's end was not observed.
    """

    attempt: int | None = None
    result: Mapping[str, Any] | None = None


@contextmanager
def failure_reported(context: Any, log: Any) -> Iterator[FailureReport]:
    """Push `DIAGNOSIS` when an error leaves the block; if the result is set by then, also `USAGE` and `PREEMPTIONS`."""
    report = FailureReport()
    try:
        yield report
    except (Exception, AirflowTaskTimeout) as error:
        xcoms: dict[str, Any] = {DIAGNOSIS: {**_error_fields(error), "attempt": report.attempt}}
        if report.result:
            xcoms |= {USAGE: usage_of(report.result), **_preemptions_of(report.result)}
        push(context["ti"], xcoms, log)
        raise


def push_result(ti: Any, result: Mapping[str, Any], log: Any) -> None:
    """Push the XComs of a job that succeeded: its outputs' addresses, `USAGE`, `PREEMPTIONS` and the scalars."""
    tfevents = result.get("tfevents") or {}
    uris = {MODEL_URI: (result.get("model") or {}).get("uri"), TFEVENTS_URI: tfevents.get("uri")}
    metrics: dict[str, Any] = {}
    for tag, value in sorted((tfevents.get("scalars") or {}).items()):
        metrics.setdefault(metric_key(tag), value)
    pushed = dict(list(metrics.items())[:MOST_METRICS])
    if len(pushed) < len(metrics):
        log.info("%d of %d scalars are XComs of their own; return_value has all", len(pushed), len(metrics))
    given = {key: uri for key, uri in uris.items() if uri}
    push(ti, {**given, USAGE: usage_of(result), **_preemptions_of(result), **pushed}, log)


def push_progress(ti: Any, submission: Submission, outcome: JobOutcome, log: Any) -> None:
    """Push the last `PROGRESS` of a job that has ended, well or not; nothing if its follower has not kept it."""
    if outcome.progress:
        push(ti, {PROGRESS: xcom_value(submission.ref.uid, outcome.cursor, outcome.progress)}, log)


def metric_key(tag: str) -> str:
    """Return a scalar's XCom key, such as `metric_eval_loss` for `eval/loss`: Airflow's client does not quote keys."""
    return METRIC + re.sub(r"[^A-Za-z0-9_.-]", "_", masked(tag))[:_LONGEST]


def usage_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job's usage: seconds, restarts, and the measured peaks of its replicas."""
    return {**{name: result.get(name) for name in _USED}, **(result.get("usage") or {"replicas": {}, "left_out": 0})}


def _preemptions_of(result: Mapping[str, Any]) -> dict[str, Any]:
    return {PREEMPTIONS: result[PREEMPTIONS]} if result.get(PREEMPTIONS) else {}


def log_success(log: Any, ref: JobRef, result: Mapping[str, Any]) -> None:
    """Log that the job succeeded; a warning if some of its replicas failed."""
    write = log.warning if result.get("failed_replicas") else log.info
    write("%s", success_text(ref, result))


def _error_fields(error: BaseException) -> dict[str, Any]:
    """Return the fields of a diagnosis, or of the error itself if the job has none; known secrets are masked."""
    retryable = error.retryable if isinstance(error, PTJobError) else not isinstance(error, AirflowFailException)
    why = error.diagnosis if isinstance(error, JobFailed | SensedFailure) else None
    return {
        "cause": why.cause.value if why else _cause(error),
        "retryable": retryable,
        "replica": why.replica if why else "",
        "advice": masked(why.resolution) if why else "",
        "message": masked(why.summary if why else str(error) or type(error).__name__),
    }


def _cause(error: BaseException) -> str:
    if isinstance(error, PTJobError | TaskStopped | SensedReplacement):
        return error.cause
    return next((cause for kind, cause in _CAUSES if isinstance(error, kind)), "unexpected")


def push(ti: Any, xcoms: Mapping[str, Any], log: Any) -> None:
    """Push XComs; an error of Airflow, or of its XCom backend, does not change how the try ends."""
    try:
        for key, value in xcoms.items():
            ti.xcom_push(key=key, value=outgoing(value, log.warning))
    except Exception as error:  # noqa: BLE001 - any error is only logged
        log.warning("the result could not be pushed as XComs: %s", error)
