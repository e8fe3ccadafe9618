"""What becomes of a job when its task ends before it: two tables."""

from __future__ import annotations

from enum import StrEnum

from ptjob_provider.core.orphans import WAITING_STATES


class Fate(StrEnum):
    """What becomes of the job of a task that does not wait for it any more."""

    KEEP = "keep"
    DELETE = "delete"


def fate_in_worker(state: str | None, *, may_retry: bool) -> Fate:
    """Decide for a worker that was told to stop.

    Not running any more (a person marked or cleared the task): delete. Still running (a drained worker): kept for the
    next try to adopt, deleted if there is none. Waiting for that try already (the worker's heartbeats had been lost):
    keep. No answer from Airflow: keep.
    """
    if state == "running":
        return Fate.KEEP if may_retry else Fate.DELETE
    return Fate.KEEP if state is None or state in WAITING_STATES - {"restarting"} else Fate.DELETE


def fate_in_trigger(state: str | None) -> Fate:
    """Decide for a trigger that was told that its task is over.

    A triggerer that was frozen and replaced is told so although the task is still deferred (apache/airflow#73454), or
    is about to be resumed, or waits for its next try or is in it, which adopts the job; or ends it, if a person has
    cleared the task. No answer from Airflow: keep.
    """
    return Fate.KEEP if state is None or state in WAITING_STATES else Fate.DELETE
