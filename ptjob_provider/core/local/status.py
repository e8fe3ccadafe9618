"""Report a job's status in the words of training-operator 1.9: conditions, counts, the verdict of its replicas. Pure.

One difference from the operator: no replica is restarted, so the first one that fails fails the job. Where the operator
depends on the order of a Go map, rank 0's role comes first here.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest

ROLE_LABEL = "training.kubeflow.org/replica-type"

Status = dict[str, Any]

_COUNTED = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}


def instant(moment: datetime) -> str:
    """Format an instant as the API server does, but with microseconds, to show which replica failed first."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def has(status: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition is present and true."""
    return any(each["type"] == kind and each["status"] == "True" for each in status.get("conditions", ()))


def is_finished(status: Mapping[str, Any]) -> bool:
    """Return whether the job has succeeded or failed."""
    return has(status, "Succeeded") or has(status, "Failed")


def with_condition(status: Mapping[str, Any], kind: str, message: str, *, now: datetime, reason: str = "") -> Status:
    """Return the status with the condition true; an end also sets Running to false, and is the completion time."""
    if has(status, kind):
        return dict(status)
    at = instant(now)
    fresh = {"type": kind, "status": "True", "reason": reason or f"PyTorchJob{kind}", "message": message}
    fresh |= {"lastUpdateTime": at, "lastTransitionTime": at}
    conditions = list(status.get("conditions", ()))
    if kind not in ("Succeeded", "Failed"):
        return {**status, "conditions": [*conditions, fresh]}
    stopped = [{**each, "status": "False"} if each["type"] == "Running" else each for each in conditions]
    return {**status, "completionTime": at, "conditions": [*stopped, fresh]}


def initial_status(job: Manifest, now: datetime) -> Status:
    """Return the status of a job whose replicas are about to start."""
    status = with_condition({}, "Created", f"PyTorchJob {job['metadata']['name']} is created.", now=now)
    return {**status, "startTime": instant(now)}


def next_status(job: Manifest, status: Status, pods: Sequence[Manifest], now: datetime) -> Status:
    """Return the job's new status; after an end it stays as it is.

    Args:
        job: the job's object.
        status: the last status.
        pods: all pods of the job, rank 0's first.
        now: with its time zone.
    """
    if is_finished(status):
        return status
    phases: dict[str, Counter[str]] = {}
    for pod in pods:
        role = pod["metadata"]["labels"][ROLE_LABEL].capitalize()
        phases.setdefault(role, Counter())[pod["status"]["phase"]] += 1
    counts = {
        role: {word: of_role[phase] for phase, word in _COUNTED.items() if of_role[phase]}
        for role, of_role in phases.items()
    }
    status = {**status, "replicaStatuses": counts}
    first, name = next(iter(phases)), job["metadata"]["name"]
    if set(phases[first]) == {"Succeeded"}:
        is_master = first == "Master"
        message = "is successfully completed." if is_master else "successfully completed."
        full_name = name if is_master else f"{job['metadata']['namespace']}/{name}"
        return with_condition(status, "Succeeded", f"PyTorchJob {full_name} {message}", now=now)
    if failed := next((role for role in phases if phases[role]["Failed"]), None):
        message = f"PyTorchJob {name} is failed because {phases[failed]['Failed']} {failed} replica(s) failed."
        return with_condition(status, "Failed", message, now=now)
    deadline = (job["spec"].get("runPolicy") or {}).get("activeDeadlineSeconds")
    if deadline is not None and (now - datetime.fromisoformat(status["startTime"])).total_seconds() >= deadline:
        message = f"Job {name} has failed because it was active longer than specified deadline"
        return with_condition(status, "Failed", message, now=now)
    is_running = phases[first]["Running"] > 0
    return with_condition(status, "Running", f"PyTorchJob {name} is running.", now=now) if is_running else status
