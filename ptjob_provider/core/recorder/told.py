"""Add reports of others to the record: the operator's events, the job's own status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ptjob_provider.core.recorder.text import bounded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ptjob_provider.core.recorder.record import Record, Termination


def told_key(replica: str) -> str:
    """Return the key of a reported end; an observed one replaces it."""
    return f"told/{replica}"


def with_end_told(record: Record, end: Termination) -> Record:
    """Return the record with the reported end of a replica whose failure was not observed."""
    if any(one.replica == end.replica and one.failed for one in record.terminations):
        return record
    return replace(record, terminations=(*record.terminations, replace(end, key=told_key(end.replica))))


def with_told(record: Record, ends: Iterable[Termination], *, restarts: int, at: datetime) -> Record:
    """Return the record with the failures and restarts that the job's own status reports.

    Args:
        record: the observed record; not changed.
        ends: failures of containers, one per replica; one without an instant gets `at`.
        restarts: reported restarts; the observed number is used if it is higher.
        at: the job's end, or the time of the observation before it.
    """
    for end in ends:
        record = with_end_told(record, replace(end, finished_at=end.finished_at or at))
    return bounded(replace(record, restarts_told=max(record.restarts_told, restarts)))
