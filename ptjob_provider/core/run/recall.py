"""Rebuild the attempt record of a task that has no persistent store, from its jobs and from notes of earlier tries.

The owner's newest attempt decides (each row has a test). Its job shows the outcome; if the job is gone, the note that
an earlier try has left shows it.

    the newest attempt                          a repeated try         any other try
    -----------------------------------------   --------------------   --------------------
    its job has not ended                       adopts it              adopts it
    succeeded, outputs valid or unknown         verifies them          verifies them
    failed, and a retry may help                the next attempt       the next attempt
    failed, and a retry cannot help             reports it again       the next attempt
    succeeded, its outputs are invalid          reports it again       the next attempt
    either of the two, not yet reported         reports it             reports it
    its job is gone; noted: a retry may help    the next attempt       the next attempt
    its job is gone; noted: it cannot help      reports it again       the next attempt
    its job is gone; noted: succeeded           delivers its result    the next attempt
    its job is gone; noted: never verified      fails: it never is     the next attempt
    its job is gone, but replicas still run     the next attempt, once they have ended

A repeated try is an automatic retry that the orchestrator identifies as one. Any other try was started by a person, who
may have corrected something, or replaces a lost try, whose outcome was not reported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core import history, kinds
from ptjob_provider.core.diagnosis import Diagnosis
from ptjob_provider.core.identity import (
    REPORT_ANNOTATION,
    TRY_ANNOTATION,
    JobRef,
    annotation_of,
    attempt_of,
    is_owned_by,
    owner_selector,
)
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.outputs.contract import problems, read_report
from ptjob_provider.core.outputs.result import preemption
from ptjob_provider.core.run.attempts import AttemptRecord
from ptjob_provider.core.run.lookup import list_jobs
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.submit import Submission, earlier_preemptions, first_start
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest, Owner


@dataclass(frozen=True, kw_only=True)
class AttemptResult:
    """Outcome of a try's job, as noted for later tries.

    Attributes:
        ref: the job.
        attempt: the number of the job's attempt.
        first_started_at: RFC 3339 creation time of the first attempt.
        outcome: the result of following the job, shortened to fit an annotation: without curves, with last lines.
        preemptions: ends by the platform up to this try, see `AttemptRecord`.
    """

    ref: JobRef
    attempt: int
    first_started_at: str
    outcome: JobOutcome
    preemptions: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(cls, submission: Submission, outcome: JobOutcome) -> Self:
        """Build the note from the result of following a try's job."""
        return cls(
            ref=submission.ref,
            attempt=submission.attempt,
            first_started_at=submission.first_started_at,
            outcome=_shortened(outcome),
            preemptions=outcome.preemptions,
        )

    @property
    def retry_may_help(self) -> bool:
        """Return whether another attempt may end differently."""
        if self.outcome.outcome is Outcome.SUCCEEDED:
            return False
        return self.outcome.diagnosis is None or self.outcome.diagnosis.retryable

    def record(self, *, ended: bool) -> AttemptRecord:
        """Return the attempt as a record of the attempt store."""
        return AttemptRecord(
            **self.ref.to_dict(),
            attempt=self.attempt,
            ended=ended,
            first_started_at=self.first_started_at,
            preemptions=[*self.preemptions],
        )

    def to_text(self) -> str:
        """Serialize the note for an annotation."""
        parts = {"ref": self.ref.to_dict(), "conclusion": self.outcome.to_dict(), "preemptions": [*self.preemptions]}
        fields = {"attempt": self.attempt, "first_started_at": self.first_started_at, **parts}
        return json.dumps(outgoing(fields), separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Rebuild a note from its text; None if the text is unreadable."""
        try:
            fields = json.loads(text)
            return cls(
                ref=JobRef.from_dict(fields["ref"]),
                attempt=int(fields["attempt"]),
                first_started_at=fields["first_started_at"],
                outcome=JobOutcome.from_dict(fields["conclusion"]),
                preemptions=tuple(map(dict, fields.get("preemptions", ()))),
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


def _shortened(outcome: JobOutcome) -> JobOutcome:
    """Return the outcome without cursor, progress, curves and duplicate parts."""
    result = dict(outcome.result or {}) if outcome.outcome is Outcome.SUCCEEDED else None
    if result and result.get("tfevents"):
        result["tfevents"] = {key: part for key, part in result["tfevents"].items() if key != "curves"}
    why = outcome.diagnosis
    return replace(outcome, cursor=None, progress={}, result=result, diagnosis=why.bounded() if why else None)


REPORTED = "told"
"""Value of the TRY_ANNOTATION that a try writes on its job before it reports the job's failure."""


class RecalledAttempts:
    """`AttemptStore` in memory that starts with the record that `recall` has rebuilt.

    Attributes:
        to_report: an earlier try's outcome that this try reports again, because its job is gone and no training is
            needed; None if there is none.
        job: the object, as it was listed, that the record was rebuilt from; None if it was rebuilt from something else.
        before_create: called before each create request.
    """

    def __init__(
        self, record: AttemptRecord | None, *, to_report: AttemptResult | None = None, job: Manifest | None = None
    ) -> None:
        self._record = record
        self.to_report = to_report
        self.job = job
        self.before_create: Callable[[], None] = lambda: None

    def load(self) -> AttemptRecord | None:
        """Return the rebuilt record, or the record that was saved last."""
        return self._record

    def save(self, record: AttemptRecord) -> None:
        """Keep the record until this process ends; the next process rebuilds it from the job."""
        if record.uid is None and not record.refused:
            self.before_create()
        self._record = record


async def recall(
    backend: Backend,
    namespace: str,
    owner: Owner,
    *,
    is_repeated: bool,
    own_kinds: Sequence[str] = tuple(kinds.KINDS),
    notes: Sequence[str] = (),
    replicas: Sequence[Manifest] = (),
) -> RecalledAttempts:
    """Rebuild the attempt record from the owner's jobs, their unfinished pods and the notes of earlier tries.

    Args:
        backend: the back-end.
        namespace: namespace of the jobs.
        owner: owner of the jobs.
        is_repeated: this try is an automatic retry.
        own_kinds: the kinds as one of which this try would create its job, see `list_jobs`.
        notes: notes of earlier tries, see `AttemptResult`.
        replicas: unfinished pods of the owner's jobs. The caller lists them before this call, so that the pods of a job
            that is deleted in between are not overlooked.

    Raises:
        ClusterError: the jobs of one of these kinds, or of the kind of an earlier try's job, cannot be listed.
    """
    running = _running_on(replicas)
    note = max((note for note in map(AttemptResult.read, notes) if note), key=lambda note: note.attempt, default=None)
    seen = {each.ref.kind for each in (note, running) if each is not None}
    jobs = await list_jobs(backend, namespace, owner_selector(owner), own=own_kinds, seen=seen)
    newest = max((job for job in jobs if is_owned_by(job, owner)), key=attempt_of, default=None)
    if note is not None and _is_all_that_is_left(note, newest):
        if is_repeated and note.outcome.outcome is Outcome.UNVERIFIED:
            return RecalledAttempts(replace(note.record(ended=False), unverified=True))
        is_final = is_repeated and not note.retry_may_help
        return RecalledAttempts(note.record(ended=True), to_report=note if is_final else None)
    if newest is not None:
        return RecalledAttempts(_record(newest, is_repeated=is_repeated), job=newest)
    return RecalledAttempts(running)


def _is_all_that_is_left(note: AttemptResult, newest: Manifest | None) -> bool:
    """Return whether the noted attempt is the newest attempt, and its job is deleted or being deleted."""
    if newest is None or attempt_of(newest) < note.attempt:
        return True
    return JobRef.of(newest) == note.ref and bool(newest["metadata"].get("deletionTimestamp"))


def _running_on(replicas: Sequence[Manifest]) -> AttemptRecord | None:
    """Return the newest attempt that has unfinished pods but no job; the next attempt waits for these pods.

    It goes on from the checkpoints since the oldest of them: what else the job's object said is gone.
    """
    records = [
        AttemptRecord(
            kind=kind.KIND,
            namespace=pod["metadata"]["namespace"],
            name=owner.name,
            uid=owner.uid,
            attempt=attempt_of(pod),
            ended=True,
            first_started_at=min(each["metadata"]["creationTimestamp"] for each in replicas),
        )
        for pod in replicas
        for kind in kinds.KINDS.values()
        if (owner := kind.owner_of(pod)).name
    ]
    return max(records, key=lambda record: record.attempt, default=None)


def _record(job: Manifest, *, is_repeated: bool) -> AttemptRecord:
    return AttemptRecord(
        **JobRef.of(job).to_dict(),
        attempt=attempt_of(job),
        ended=_is_settled(job) and (_retry_may_help(job) or not (is_repeated or _is_unreported(job))),
        first_started_at=first_start(job),
        preemptions=[*earlier_preemptions(job), *_preemption(job)],
    )


def _preemption(job: Manifest) -> list[dict[str, Any]]:
    """Return the job's own end if the platform has caused it, see `preemption`."""
    ended_at = kinds.read_status(job).finished_at
    return preemption(history.stored_in(job), Diagnosis.stored_in(job), ended_at=ended_at)


def _is_settled(job: Manifest) -> bool:
    """Return whether the job has failed, or has succeeded with invalid outputs."""
    phase = kinds.read_status(job).phase
    return phase is JobPhase.FAILED or (phase is JobPhase.SUCCEEDED and _has_invalid_outputs(job))


def _is_unreported(job: Manifest) -> bool:
    return annotation_of(job, TRY_ANNOTATION) != REPORTED


def _retry_may_help(job: Manifest) -> bool:
    diagnosis = Diagnosis.stored_in(job)
    return kinds.read_status(job).phase is JobPhase.FAILED and (diagnosis is None or diagnosis.retryable)


def _has_invalid_outputs(job: Manifest) -> bool:
    """Return whether the job's outputs were inspected and found invalid."""
    outputs = Submission.of(job).outputs
    report = read_report(annotation_of(job, REPORT_ANNOTATION), outputs)
    return bool(report and problems(report, outputs))
