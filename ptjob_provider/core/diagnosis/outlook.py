"""Advice on a waiting job and the limits of its wait, reported once, while action is still possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.diagnosis.ending import clocks, duration
from ptjob_provider.core.diagnosis.held_up import advice_on
from ptjob_provider.core.recorder import WaitKind

if TYPE_CHECKING:
    from datetime import datetime

    from ptjob_provider.core.diagnosis.ending import Limits
    from ptjob_provider.core.recorder import Record


def outlook(record: Record, *, limits: Limits | None, deadline: datetime | None = None) -> str:
    """Return the continuation of a sentence about the wait: `. Ask for less or free a node; there is no time limit`.

    Args:
        record: the record of the job's pods.
        limits: when the job is given up; None: another owner's job with unknown limits.
        deadline: when it is stopped in any case.
    """
    if not record.waiting and record.queued_since is None:
        return ""
    advice = advice_on(record.waiting)
    until = _until(record, limits, deadline) if limits else ""
    return (f". {advice}" if advice else "") + (f"; {until}" if until else "")


def _until(record: Record, limits: Limits, deadline: datetime | None) -> str:
    kinds = {wait.kind for wait in record.waiting}
    if WaitKind.BROKEN in kinds:
        return "given up at once"
    first = min(clocks(record, limits), default=None)
    if deadline is not None and (first is None or deadline < first.ends_at):
        return f"waited for until the deadline, {deadline.isoformat(sep=' ', timespec='seconds')}"
    if WaitKind.CRASH_LOOP in kinds and limits.crash_loop_limit is not None:
        return f"given up after {limits.crash_loop_limit} restarts in a row"
    return f"given up after {duration(first.seconds)} ({first.name})" if first else "there is no time limit"
