"""Define the phases and the status of jobs, the same for all kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


class JobPhase(StrEnum):
    """Phase of a job; `kinds` derives it from the conditions of each CRD."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_terminal(self) -> bool:
        """Return whether the phase is final."""
        return self in {JobPhase.SUCCEEDED, JobPhase.FAILED}


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job object's status at one moment; instants are aware datetimes in UTC, None where unknown.

    Two fields are not serialized: `time_limit` is the job's activeDeadlineSeconds, and `is_taken_up` is False until the
    job's operator has written a status.
    """

    phase: JobPhase
    reason: str = ""
    message: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    time_limit: int | None = field(default=None, compare=False)
    is_taken_up: bool = field(default=True, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields; instants are RFC 3339 texts."""
        instants = {name: _text(getattr(self, name)) for name in ("created_at", "started_at", "finished_at")}
        return {"phase": self.phase.value, "reason": self.reason, "message": self.message, **instants}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild a status from the value of `to_dict`."""
        instants: dict[str, Any] = {
            name: parse_instant(fields[name]) for name in ("created_at", "started_at", "finished_at")
        }
        return cls(phase=JobPhase(fields["phase"]), reason=fields["reason"], message=fields["message"], **instants)


def parse_instant(text: str | None) -> datetime | None:
    """Parse an RFC 3339 instant (`2026-11-20T10:00:00Z`) to one of UTC; None for None and "".

    Also None for what a CRD's `format: date-time` admits and Python has no datetime for, such as the year 0.
    """
    if not text:
        return None
    try:
        instant = datetime.fromisoformat(text.upper())
        return instant.replace(tzinfo=instant.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def later(instant: datetime, seconds: float) -> datetime | None:
    """Return the instant this many seconds later, or earlier for a negative number.

    None outside the years 1 to 9998, and for what is no number.

    A CRD admits a deadline of 292 billion years. Whoever adds some minutes to the result stays within a datetime.
    """
    try:
        result = instant + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None
    return result if result.year < MAXYEAR else None


def since_1970(seconds: float) -> datetime | None:
    """Return the instant of a file's time; None outside the years 1 to 9998, because programs can set any time."""
    return later(datetime(1970, 1, 1, tzinfo=UTC), seconds)


def _text(instant: datetime | None) -> str | None:
    return instant.isoformat() if instant else None
