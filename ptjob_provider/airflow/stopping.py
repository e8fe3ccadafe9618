"""Decides what happens to a job when its task ends first: two tables."""

from __future__ import annotations

from enum import StrEnum

from ptjob_provider.core.orphans import WAITING_STATES


class Fate(StrEnum):
    """The action on a job whose task no longer waits for it."""

    KEEP = "keep"
    DELETE = "delete"


def fate_in_worker(state: str | None, *, may_retry: bool) -> Fate:
    """Decide for a worker that was told to stop.

    | state in Airflow | action |
    |---|---|
    | not running (a person marked or cleared the task) | delete |
    | running (a drained worker) | keep for the next try to adopt; delete if there is none |
    | waiting for the next try (lost heartbeats) | keep |
    | no response | keep |
    """
    if state == "running":
        return Fate.KEEP if may_retry else Fate.DELETE
    return Fate.KEEP if state is None or state in WAITING_STATES - {"restarting"} else Fate.DELETE


def fate_in_trigger(state: str | None) -> Fate:
    """Decide for a trigger that was told that its task is over.

    A triggerer that was frozen and replaced gets this call although the task is still deferred (apache/airflow#73454),
    is about to be resumed, or waits for or runs its next try. That try adopts the job, or ends it if a person has
    cleared the task. No response from Airflow: keep.
    """
    return Fate.KEEP if state is None or state in WAITING_STATES else Fate.DELETE
