"""Decide which attempt comes next, and whether an existing job belongs to it. Pure.

Attempts are numbered by this package; they are not the orchestrator's try numbers. A restarted worker is a new try of
the same attempt and adopts the running job.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from ptjob_provider.core.identity import INTENT_ANNOTATION, SPEC_HASH_ANNOTATION, is_owned_by
from ptjob_provider.core.versions import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Owner
    from ptjob_provider.core.status import JobPhase


@dataclass(frozen=True, kw_only=True)
class AttemptRecord(Record):
    """Stored state of the last attempt, written before the job is created.

    Attributes:
        attempt: 1 for the first job of a task instance.
        name: the object's name.
        namespace: where it was created.
        uid: the object's uid; None while the create is not known to have happened (an open intent).
        ended: the attempt failed; the next try starts a new one.
        clear_number: a record with another number is obsolete: the task has been cleared since.
        delivered_by: the try that delivered the success of the attempt's job; 0 for none.
        kind: the object's kind.
        first_started_at: RFC 3339 creation time of the first attempt since the last clear; older outputs are rejected.
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


class AttemptStore(Protocol):
    """Persistent store of the attempt record, such as Airflow's task_state_store."""

    def load(self) -> AttemptRecord | None:
        """Return the last saved record; None if there is none, or no store."""

    def save(self, record: AttemptRecord) -> None:
        """Persist the record for later processes."""


class Plan(StrEnum):
    """First action of a try."""

    START = "start"
    """Create a job: none of this owner is recorded."""
    RESUME = "resume"
    """Continue the recorded attempt: adopt its job, or repeat a create that never arrived."""
    REPLACE = "replace"
    """Start the next attempt: stop the recorded job, wait until its pods are gone, then create."""


def plan(record: AttemptRecord | None, *, clear_number: int) -> Plan:
    """Choose a try's first action from the recorded attempt."""
    if record is None:
        return Plan.START
    if record.ended or record.clear_number != clear_number:
        return Plan.REPLACE
    return Plan.RESUME


def is_delivered(record: AttemptRecord | None, *, tries_before_clear: int) -> bool:
    """Return whether the recorded attempt's success was delivered before the task was cleared.

    A clear may leave `clear_number` unchanged. A finished job that was delivered earlier is obsolete; a live one is
    still adopted, because a higher try number is no reason to stop it.
    """
    return record is not None and 0 < record.delivered_by <= tries_before_clear


class Ownership(StrEnum):
    """Relation of an object with our name to this attempt."""

    ADOPT = "adopt"
    """This attempt's job: follow it, or conclude it if it has finished."""
    HISTORY = "history"
    """This task's job, but being deleted, or finished and obsolete: take the next attempt."""
    FOREIGN = "foreign"
    """Another owner's object: leave it unchanged."""


def ownership_of(
    job: Mapping[str, Any], *, phase: JobPhase, owner: Owner, record: AttemptRecord | None, intent: str = ""
) -> Ownership:
    """Decide whether an object with our name is this attempt's job.

    Args:
        job: the object.
        phase: its phase.
        owner: the owner to compare with.
        record: the store's record when this try began; a finished job is ours only if the record holds its uid or the
            open intent to create it.
        intent: written by this try on what it creates: a short job may end before its create is answered.
    """
    if not is_owned_by(job, owner):
        return Ownership.FOREIGN
    if job["metadata"].get("deletionTimestamp"):
        return Ownership.HISTORY
    is_just_made = bool(intent) and (job["metadata"].get("annotations") or {}).get(INTENT_ANNOTATION) == intent
    if not phase.is_terminal or is_just_made or _is_recorded(job, record):
        return Ownership.ADOPT
    return Ownership.HISTORY


def spec_changed(job: Mapping[str, Any], spec_hash: str) -> bool:
    """Return whether the running job was created from a different specification than the requested one."""
    return bool(job["metadata"].get("annotations", {}).get(SPEC_HASH_ANNOTATION) != spec_hash)


def _is_recorded(job: Mapping[str, Any], record: AttemptRecord | None) -> bool:
    if record is None or record.ended or record.name != job["metadata"]["name"]:
        return False
    return record.uid in {None, job["metadata"]["uid"]}
