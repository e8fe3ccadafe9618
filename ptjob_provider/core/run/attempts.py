"""Decide which attempt a try works on, and whether an existing job belongs to that attempt. Pure.

This package numbers the attempts; an attempt's number is not the orchestrator's try number. A restarted worker is a
new try of the same attempt, and adopts the running job.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from ptjob_provider.core import kinds
from ptjob_provider.core.containment import contained
from ptjob_provider.core.diagnosis import Diagnosis
from ptjob_provider.core.identity import (
    EARLIER_ANNOTATION,
    INTENT_ANNOTATION,
    REPORTED_ANNOTATION,
    RESUMED_ANNOTATION,
    JobRef,
    annotation_of,
    attempt_of,
    is_owned_by,
)
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.versions import MALFORMED, Record, read_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ptjob_provider.core.identity import Owner
    from ptjob_provider.core.status import JobPhase, JobStatus

    Summary = Mapping[str, Any]

MAX_EARLIER = 20
"""Maximum number of earlier attempts of which summaries are kept."""

EARLIER_SIZE = 4 * 1024
"""Maximum characters of these summaries as JSON; the newest are kept."""

_TEXT = 300
"""Maximum characters of a message and of an advice in a summary."""


@dataclass(frozen=True, kw_only=True)
class AttemptRecord(Record):
    """Stored state of the last attempt, written before the job is created.

    Attributes:
        attempt: 1 for the first job of a task instance.
        name: the object's name.
        namespace: where it was created.
        uid: the object's uid; None until the job is known to exist (an open intent).
        refused: the request to create the job was refused for good, so no job has come of the intent.
        ended: the attempt failed; the next try starts a new attempt.
        clear_number: the task's clear number; a record whose number differs is obsolete.
        delivered_by: number of the try that delivered the result of the attempt's job; 0 if none did.
        kind: the object's kind.
        first_started_at: RFC 3339 creation time of the first attempt since the last clear; older outputs are rejected.
        unverified: the attempt's job succeeded, but its outputs could not be inspected.
        earlier: summaries of the attempts before this one, and of this one once it has ended; oldest first.
        preemptions: {node, cause, seconds_lost} of each attempt since the last clear that the platform ended.
    """

    attempt: int
    name: str
    namespace: str
    uid: str | None = None
    ended: bool = False
    clear_number: int = 0
    first_started_at: str | None = None
    kind: str = "PyTorchJob"
    delivered_by: int = 0
    refused: bool = False
    unverified: bool = False
    earlier: list[Summary] = field(default_factory=list)
    preemptions: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def ref(self) -> JobRef:
        """Return the reference to the job; its uid is "" if the job is not known to exist."""
        return JobRef(kind=self.kind, namespace=self.namespace, name=self.name, uid=self.uid or "")


class AttemptStore(Protocol):
    """Persistent store of the attempt record, such as Airflow's task_state_store."""

    def load(self) -> AttemptRecord | None:
        """Return the last saved record; None if nothing was saved, or if there is no store."""

    def save(self, record: AttemptRecord) -> None:
        """Persist the record for later processes."""


def is_over(record: AttemptRecord, *, clear_number: int) -> bool:
    """Return whether the recorded attempt has failed, or was cleared, so that the next attempt replaces it."""
    return record.ended or record.clear_number != clear_number


def is_delivered(record: AttemptRecord | None, *, tries_before_clear: int) -> bool:
    """Return whether the result of the recorded attempt was delivered before the task was cleared.

    A clear may leave `clear_number` unchanged. A finished job whose result was delivered before the clear is obsolete.
    A running job is adopted nevertheless, because a higher try number is no reason to stop it.
    """
    return record is not None and 0 < record.delivered_by <= tries_before_clear


class Ownership(StrEnum):
    """Relation between this attempt and an existing object that has the attempt's name."""

    ADOPT = "adopt"
    """The object is this attempt's job: follow it, or report its outcome if it has finished."""
    HISTORY = "history"
    """The object is an earlier job of this task, being deleted or finished and obsolete: start the next attempt."""
    FOREIGN = "foreign"
    """The object belongs to another owner: leave it unchanged."""


def ownership_of(
    job: Mapping[str, Any], *, phase: JobPhase, owner: Owner, record: AttemptRecord | None, intent: str = ""
) -> Ownership:
    """Decide whether an existing object that has the attempt's name is the attempt's job.

    Args:
        job: the object.
        phase: its phase.
        owner: the owner to compare with.
        record: the store's record when this try began; a finished job is this attempt's only if the record has its uid,
            or the open intent to create it.
        intent: id that this try writes on the jobs that it creates; a short job may end before its create request is
            answered.
    """
    if not is_owned_by(job, owner):
        return Ownership.FOREIGN
    if job["metadata"].get("deletionTimestamp"):
        return Ownership.HISTORY
    is_just_made = bool(intent) and annotation_of(job, INTENT_ANNOTATION) == intent
    if not phase.is_terminal or is_just_made or _is_recorded(job, record):
        return Ownership.ADOPT
    return Ownership.HISTORY


def _is_recorded(job: Mapping[str, Any], record: AttemptRecord | None) -> bool:
    if record is None or record.ended or record.name != job["metadata"]["name"]:
        return False
    return record.uid in {None, job["metadata"]["uid"]}


def summary(
    ref: JobRef,
    *,
    attempt: int,
    status: JobStatus,
    outcome: str,
    why: Diagnosis | None,
    reported: Mapping[str, Any],
    resumed: str,
) -> dict[str, Any]:
    """Return what people are told about an attempt that is over, as JSON-safe fields; instants are RFC 3339 texts.

    Args:
        ref: its job.
        attempt: its number.
        status: its job's last status.
        outcome: how it ended.
        why: the cause of its failure.
        reported: first_step, last_step, rate and in_order, see `resumed.Steps`.
        resumed: where it went on, see `resumed.sentence`.
    """
    instants = status.to_dict()
    return {
        "attempt": attempt,
        "job": str(ref),
        "uid": ref.uid,
        "started": instants["started_at"] or instants["created_at"] or "",
        "ended": instants["finished_at"] or "",
        "outcome": outcome,
        "cause": str(why.cause) if why else "",
        "message": why.failure(ref)[:_TEXT] if why else "",
        "advice": why.resolution[:_TEXT] if why else "",
        **{name: reported.get(name) for name in ("first_step", "last_step", "rate", "in_order")},
        **({"resumed": resumed[:_TEXT]} if resumed else {}),
    }


@contained(lambda _why, _job: [])
def with_own(job: Mapping[str, Any]) -> list[Summary]:
    """Return the summaries on a job of earlier attempts, and its own."""
    status = kinds.read_status(job)
    own = summary(
        JobRef.of(job),
        attempt=attempt_of(job),
        status=status,
        outcome=status.phase.value,
        why=Diagnosis.stored_in(job),
        reported=read_object(annotation_of(job, REPORTED_ANNOTATION)),
        resumed=annotation_of(job, RESUMED_ANNOTATION),
    )
    return newest([*earlier_in(job), own])


def earlier_in(job: Mapping[str, Any]) -> list[Summary]:
    """Return the summaries on a job of the attempts before it; [] if it has none."""
    try:
        written = json.loads(annotation_of(job, EARLIER_ANNOTATION) or "[]")
        return newest([{**each, "attempt": int(each["attempt"])} for each in written])
    except MALFORMED:
        return []


def newest(summaries: Iterable[Summary]) -> list[Summary]:
    """Return the newest of these summaries, at most MAX_EARLIER and EARLIER_SIZE, oldest first.

    They are as they can leave the process: somebody may have edited those of a job.
    """
    kept = [each for each in outgoing([*summaries][-MAX_EARLIER:]) if isinstance(each["attempt"], int)]
    while kept and len(json.dumps(kept)) > EARLIER_SIZE:
        del kept[0]
    return kept
