"""Derive a TrainJob's status from its conditions: three types, none of which shows that a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds.trainjob.words import STEP
from ptjob_provider.core.status import JobPhase, JobStatus, parse_instant

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_DECISIONS = (
    ("Failed", JobPhase.FAILED),
    ("Complete", JobPhase.SUCCEEDED),
    ("Suspended", JobPhase.SUSPENDED),
)
"""The first true one decides. A resumed job keeps `Suspended` as False, which has no meaning."""

_DEADLINE = "DeadlineExceeded"
"""The one reason of `Failed` that Trainer keeps, even where the JobSet completes while it is being deleted for it:
Trainer checks no deadline of a complete job. Besides `Complete`, any other reason came after it, and is removed
again."""


def read_status(job: Mapping[str, Any]) -> JobStatus:
    """Derive the job's status from its object.

    While no condition is true, the job runs when the runtime's job has all its pods ready; until then it is pending,
    also while it crash-loops. For its own deadline, it started when it was created or resumed.
    """
    status = job.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or []}
    true = {name: each for name, each in conditions.items() if each.get("status") == "True"}
    if "Complete" in true and true.get("Failed", {}).get("reason") != _DEADLINE:
        true.pop("Failed", None)
    name, phase = next((found for found in _DECISIONS if found[0] in true), ("", JobPhase.PENDING))
    if not name and _is_ready(status):
        phase = JobPhase.RUNNING
    deciding = true.get(name, {})
    created = job["metadata"].get("creationTimestamp")
    resumed = (conditions.get("Suspended") or {}).get("lastTransitionTime")
    started = created if "Suspended" not in conditions else resumed
    return JobStatus(
        phase=phase,
        reason=deciding.get("reason") or "",
        message=deciding.get("message") or "",
        created_at=parse_instant(created),
        started_at=parse_instant(started) if "Suspended" not in true else None,
        finished_at=parse_instant(deciding.get("lastTransitionTime")) if phase.is_terminal else None,
    )


def running_since(_job: Mapping[str, Any]) -> datetime | None:
    """Return None: no condition has the start of a TrainJob's run."""
    return None


def due_at(_job: Mapping[str, Any]) -> datetime | None:
    """Return None: Trainer enforces the job's deadline by itself."""
    return None


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(
        each.get("name") == STEP and ((each.get("ready") or 0) > 0 or (each.get("succeeded") or 0) > 0)
        for each in status.get("jobsStatus") or ()
    )
