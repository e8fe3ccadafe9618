"""Which attempt comes next, and whether a job that is already there is ours: decisions without any I/O.

An attempt is ours to count, not the orchestrator's try number: a worker that died and was restarted is a new try of
the same attempt, and it adopts the job that runs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self

from ptjob_provider.core.identity import INTENT_ANNOTATION, SPEC_HASH_ANNOTATION, is_owned_by
from ptjob_provider.core.versions import known_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Owner
    from ptjob_provider.core.status import JobPhase


@dataclass(frozen=True, kw_only=True)
class AttemptRecord:
    """What is remembered of the last attempt, outside the process; written before the job is created.

    Attributes:
        attempt: 1 for the first job of a task instance.
        name: the object's name.
        namespace: where it was created.
        uid: the object's uid; None while the create is not known to have happened (an open intent).
        ended: the attempt was concluded as failed; the next try starts a new one.
        clear_number: a record with another number is history: a person has cleared the task since.
        delivered_by: the try that handed on the success of the attempt's job; 0 if none has.
        kind: of the object.
        first_started_at: RFC 3339; when the first attempt since the last clear was created. Outputs must not be older.
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

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields for the store."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` returned, in this version or another."""
        return cls(**known_fields(cls, fields))


class AttemptStore(Protocol):
    """Where the record outlives the process: Airflow's task_state_store; a pipeline step recalls it."""

    def load(self) -> AttemptRecord | None:
        """Return what was saved last; None if nothing was, or if there is no store."""

    def save(self, record: AttemptRecord) -> None:
        """Keep the record; afterwards another process loads it."""


class Plan(StrEnum):
    """What a try has to do first."""

    START = "start"
    """No job of ours is known: create one."""
    RESUME = "resume"
    """The recorded attempt goes on: adopt its job, or repeat the create if it never arrived."""
    REPLACE = "replace"
    """The recorded attempt is history: stop its job, wait until nothing of it runs, then create the next one."""


def plan(record: AttemptRecord | None, *, clear_number: int) -> Plan:
    """Decide what a try does about the recorded attempt."""
    if record is None:
        return Plan.START
    if record.ended or record.clear_number != clear_number:
        return Plan.REPLACE
    return Plan.RESUME


def is_delivered(record: AttemptRecord | None, *, tries_before_clear: int) -> bool:
    """Return whether the success of the recorded attempt was handed on before the task was cleared.

    A clear may leave `clear_number` as it is. A finished job that was delivered before it is history; a live one is
    adopted all the same, for a number of tries is no reason to stop it.
    """
    return record is not None and 0 < record.delivered_by <= tries_before_clear


class Claim(StrEnum):
    """What an object that has our name is to us."""

    ADOPT = "adopt"
    """It is this attempt's job: follow it, or conclude it if it has finished."""
    HISTORY = "history"
    """It is this task's, but being deleted, or finished with nobody waiting for it: take the next attempt."""
    FOREIGN = "foreign"
    """It is somebody else's: touch nothing."""


def claim(
    found: Mapping[str, Any], *, phase: JobPhase, owner: Owner, record: AttemptRecord | None, intent: str = ""
) -> Claim:
    """Decide whether an object under our name is this attempt's job.

    Args:
        found: the object.
        phase: its phase.
        owner: who asks.
        record: what the store held when this try began; it must hold the object's uid, or the open intent to create it,
            for a finished job to be ours.
        intent: what this try writes on what it creates: a short job may have ended before the answer to its create.
    """
    if not is_owned_by(found, owner):
        return Claim.FOREIGN
    if found["metadata"].get("deletionTimestamp"):
        return Claim.HISTORY
    is_just_made = bool(intent) and (found["metadata"].get("annotations") or {}).get(INTENT_ANNOTATION) == intent
    if not phase.is_terminal or is_just_made or _is_recorded(found, record):
        return Claim.ADOPT
    return Claim.HISTORY


def spec_changed(found: Mapping[str, Any], spec_hash: str) -> bool:
    """Whether the job that runs was made from another specification than the one asked for now."""
    return bool(found["metadata"].get("annotations", {}).get(SPEC_HASH_ANNOTATION) != spec_hash)


def _is_recorded(found: Mapping[str, Any], record: AttemptRecord | None) -> bool:
    if record is None or record.ended or record.name != found["metadata"]["name"]:
        return False
    return record.uid in {None, found["metadata"]["uid"]}
