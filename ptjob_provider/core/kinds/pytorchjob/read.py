"""Read a PyTorchJob's status from its condition types, and its pods; reasons differ from version to version."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds.kind import numbered, owner_in
from ptjob_provider.core.kinds.pytorchjob.render import KIND, ROLES
from ptjob_provider.core.status import JobPhase, JobStatus, parse_instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from ptjob_provider.core.kinds.kind import PodOwner, Replica

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
    starts = (each for each in conditions if each["type"] == "Running")
    start: Mapping[str, Any] = next(
        (each for each in starts if not (each.get("reason") or "").endswith("Suspended")), {}
    )
    return parse_instant(start.get("lastTransitionTime"))


def read_status(job: Mapping[str, Any]) -> JobStatus:
    """Derive the job's status from the back-end's object; an object without conditions is pending."""
    status = job.get("status") or {}
    true = {each["type"]: each for each in status.get("conditions") or [] if each.get("status") == "True"}
    kind, phase = next((each for each in _DECISIONS if each[0] in true), ("", JobPhase.PENDING))
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


_JOB_NAME_LABEL = "training.kubeflow.org/job-name"
_OLD_JOB_NAME_LABEL = "pytorch-job-name"

HAS_FIXED_POD_NAMES = True
HAS_LABELLED_PODS = True


def replicas(manifest: Mapping[str, Any]) -> tuple[Replica, ...]:
    """Return all pods of the job, rank 0 first: the master if there is one, else worker 0."""
    specs = manifest["spec"]["pytorchReplicaSpecs"]
    roles = ((role.lower(), specs[role]) for role in ROLES if role in specs)
    return tuple(numbered(manifest["metadata"]["name"], roles))


def pod_selector(name: str = "", *, older: bool = False) -> str:
    """Return the label selector of a job's pods, or of all jobs', as set by training-operator 1.4 and later.

    The old PyTorch operator, whose CRD has no `runPolicy`, sets another one since 0.5.
    """
    label = _OLD_JOB_NAME_LABEL if older else _JOB_NAME_LABEL
    return f"{label}={name}" if name else label


def owner_of(pod: Mapping[str, Any]) -> PodOwner:
    """Return the job that owns the pod."""
    return owner_in(pod, KIND)


def replica_of(pod: Mapping[str, Any]) -> str:
    """Return the pod's name, which is the replica's."""
    return str(pod["metadata"]["name"])


def is_restarted(manifest: Mapping[str, Any], replica: str) -> bool:
    """Return whether the operator or the kubelet may restart a failed replica; False if the job no longer has it."""
    role = next((each.role for each in replicas(manifest) if each.name == replica), None)
    if role is None:
        return False
    policy = manifest["spec"]["pytorchReplicaSpecs"][role.capitalize()].get("restartPolicy")
    return bool(policy != "Never")


def templates(manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the template of every role."""
    yield from (replica["template"] for replica in manifest["spec"]["pytorchReplicaSpecs"].values())


def replica_named(pod: str) -> str:
    """Return the replica name for a pod name: the same."""
    return pod


def controllers(_name: str) -> tuple[tuple[str, str], ...]:
    """Return nothing: the operator creates a job's pods itself, and its events are about the job."""
    return ()


def runtime_of(_manifest: Mapping[str, Any]) -> None:
    """Return None: the job has no runtime."""


def rank0_template(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the template of rank 0's pod."""
    roles = manifest["spec"]["pytorchReplicaSpecs"]
    template: Mapping[str, Any] = next(roles[role] for role in ROLES if role in roles)["template"]
    return template


def priority(manifest: Mapping[str, Any]) -> str:
    """Return the pods' priority class, or the gang's."""
    policy = (manifest["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}
    pod = rank0_template(manifest).get("spec") or {}
    return str(pod.get("priorityClassName") or policy.get("priorityClass") or "")
