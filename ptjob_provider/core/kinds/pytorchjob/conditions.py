"""Derive a PyTorchJob's status from its condition types; reasons differ from version to version."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.status import JobPhase, JobStatus, parse_instant

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_DECISIONS = (
    ("Failed", JobPhase.FAILED),
    ("Succeeded", JobPhase.SUCCEEDED),
    ("Suspended", JobPhase.SUSPENDED),
    ("Restarting", JobPhase.RUNNING),
    ("Running", JobPhase.RUNNING),
    ("Created", JobPhase.PENDING),
)
"""The first true one decides. Failed comes first: it is final, while an elastic job that has succeeded can still fail.
Restarting stays true after an end, so both ends come before it."""


def due_at(job: Mapping[str, Any]) -> datetime | None:
    """Return the end of the job's own deadline; None if it has none, has not started or has ended."""
    seconds = (job["spec"].get("runPolicy") or job["spec"]).get("activeDeadlineSeconds")
    status = read_status(job)
    if seconds is None or status.started_at is None or status.phase.is_terminal:
        return None
    return status.started_at + timedelta(seconds=seconds)


def running_since(job: Mapping[str, Any]) -> datetime | None:
    """Return the start of the job's current run; None if it has not started.

    `Running` turns False at the end and keeps its instant; suspending sets both its instant and its reason.
    """
    conditions = (job.get("status") or {}).get("conditions") or []
    found = (each for each in conditions if each["type"] == "Running")
    told: Mapping[str, Any] = next((each for each in found if not (each.get("reason") or "").endswith("Suspended")), {})
    return parse_instant(told.get("lastTransitionTime"))


def read_status(job: Mapping[str, Any]) -> JobStatus:
    """Derive the job's status from the back-end's object; an object without conditions is pending."""
    status = job.get("status") or {}
    true = {each["type"]: each for each in status.get("conditions") or [] if each.get("status") == "True"}
    kind, phase = next((found for found in _DECISIONS if found[0] in true), ("", JobPhase.PENDING))
    deciding = true.get(kind, {})
    ended = (status.get("completionTime") or deciding.get("lastTransitionTime")) if phase.is_terminal else None
    return JobStatus(
        phase=phase,
        reason=deciding.get("reason") or "",
        message=deciding.get("message") or "",
        created_at=parse_instant(job["metadata"].get("creationTimestamp")),
        started_at=parse_instant(status.get("startTime")),
        finished_at=parse_instant(ended),
    )
