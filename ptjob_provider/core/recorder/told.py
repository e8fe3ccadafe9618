"""What others tell of a job's containers that nobody here saw: the operator's events, the job's own status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ptjob_provider.core.recorder.text import bounded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ptjob_provider.core.recorder.record import Record, Termination


def told_key(replica: str) -> str:
    """Return the key of an end that was only told of; one that is seen takes its place."""
    return f"told/{replica}"


def with_end_told(record: Record, end: Termination) -> Record:
    """Return the record with what was told of a replica that nobody saw failing."""
    if any(one.replica == end.replica and one.failed for one in record.terminations):
        return record
    return replace(record, terminations=(*record.terminations, replace(end, key=told_key(end.replica))))


def with_told(record: Record, ends: Iterable[Termination], *, restarts: int, at: datetime) -> Record:
    """Return the record with failures and a number of restarts that the job's own status tells.

    Args:
        record: what was seen; not changed.
        ends: failures of containers, one a replica; one without an instant counts as of then.
        restarts: how many there were; what was seen counts if it is more.
        at: the job's end, or the time of looking before it.
    """
    for end in ends:
        record = with_end_told(record, replace(end, finished_at=end.finished_at or at))
    return bounded(replace(record, restarts_told=max(record.restarts_told, restarts)))
