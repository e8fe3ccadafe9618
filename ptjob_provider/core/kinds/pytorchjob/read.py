"""Read a PyTorchJob: its status from the types of its conditions, its replicas and its policies."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds.kind import Kind, numbered
from ptjob_provider.core.kinds.pytorchjob.render import (
    API_VERSION,
    CONTAINER,
    DEFAULT_TTL,
    KIND,
    ROLES,
    converted_for,
    is_older,
    lacking,
    render,
)
from ptjob_provider.core.status import JobPhase, JobStatus, parse_instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds.kind import Replica

_DECISIONS = (
    ("Failed", JobPhase.FAILED),
    ("Succeeded", JobPhase.SUCCEEDED),
    ("Suspended", JobPhase.SUSPENDED),
    ("Restarting", JobPhase.RUNNING),
    ("Running", JobPhase.RUNNING),
    ("Created", JobPhase.PENDING),
)
"""Conditions and their phases; the first true condition decides. Failed comes first: it is final, while an elastic job
that has succeeded can still fail. Restarting stays true after an end, so both ends come before it."""


class PyTorchJob(Kind):
    """PyTorchJob of `kubeflow.org/v1`. Reasons of conditions differ between versions, so that only types are read."""

    KIND = KIND
    API_VERSION = API_VERSION
    PLURAL = "pytorchjobs"
    OPERATOR = "the training-operator"
    CONTAINER = CONTAINER
    HAS_FIXED_POD_NAMES = True
    POD_LABEL = "training.kubeflow.org/job-name"
    OLD_POD_LABEL = "pytorch-job-name"
    STOP_RUNNING_PODS = {"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}}  # noqa: RUF012 - never changed
    """The operator's default leaves the other replicas of an ended job running (training-operator #1579)."""

    rendered = staticmethod(render)
    lacking = staticmethod(lacking)
    converted_for = staticmethod(converted_for)
    is_older = staticmethod(is_older)

    def read_status(self, job: Mapping[str, Any]) -> JobStatus:
        """Derive the job's status from its object; an object without conditions is pending."""
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

    def running_since(self, job: Mapping[str, Any]) -> datetime | None:
        """Return the start of the job's current run; None if it has not started.

        The condition `Running` becomes False at the job's end and keeps its time. Suspending the job changes both the
        condition's time and its reason.
        """
        conditions = (job.get("status") or {}).get("conditions") or []
        starts = (each for each in conditions if each["type"] == "Running")
        start: Mapping[str, Any] = next(
            (each for each in starts if not (each.get("reason") or "").endswith("Suspended")), {}
        )
        return parse_instant(start.get("lastTransitionTime"))

    def due_at(self, job: Mapping[str, Any]) -> datetime | None:
        """Return the end of the job's own deadline; None if it has none, has not started or has ended."""
        seconds = _policy_of(job).get("activeDeadlineSeconds")
        status = self.read_status(job)
        if seconds is None or status.started_at is None or status.phase.is_terminal:
            return None
        return status.started_at + timedelta(seconds=seconds)

    def replicas(self, manifest: Mapping[str, Any]) -> tuple[Replica, ...]:
        """Return all replicas of the job, rank 0 first: the master if there is one, else worker 0."""
        specs = manifest["spec"]["pytorchReplicaSpecs"]
        roles = ((role.lower(), specs[role]) for role in ROLES if role in specs)
        return tuple(numbered(manifest["metadata"]["name"], roles))

    def is_restarted(self, manifest: Mapping[str, Any], replica: str) -> bool:
        """Return whether the operator may restart a failed replica; False if the job no longer has the replica."""
        role = next((each.role for each in self.replicas(manifest) if each.name == replica), None)
        if role is None:
            return False
        policy = manifest["spec"]["pytorchReplicaSpecs"][role.capitalize()].get("restartPolicy")
        return bool(policy != "Never")

    def stops_by_itself(self, job: Mapping[str, Any]) -> bool:
        """Return whether the job's policy makes the operator stop the remaining pods when the job ends."""
        return _policy_of(job).get("cleanPodPolicy") in {"Running", "All"}

    def suspended(self, *, suspend: bool) -> Manifest:
        """Return the patch that suspends or resumes the job."""
        return {"spec": {"runPolicy": {"suspend": suspend}}}

    def expiring(self, job: Mapping[str, Any]) -> Manifest | None:
        """Return the patch that sets the default TTL on an ended job; None if the job has a TTL."""
        if self.expires(job):
            return None
        return {"spec": {"runPolicy": {"ttlSecondsAfterFinished": DEFAULT_TTL}}}

    def expires(self, job: Mapping[str, Any]) -> bool:
        """Return whether the job has a TTL, after which the operator deletes it."""
        return _policy_of(job).get("ttlSecondsAfterFinished") is not None

    def priority(self, manifest: Mapping[str, Any]) -> str:
        """Return the priority class of the pods, else of the gang."""
        policy = (manifest["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}
        pod = self.rank0_template(manifest).get("spec") or {}
        return str(pod.get("priorityClassName") or policy.get("priorityClass") or "")

    def templates(self, manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the template of every role, rank 0's first."""
        roles = manifest["spec"]["pytorchReplicaSpecs"]
        yield from (roles[role]["template"] for role in ROLES if role in roles)


def _policy_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the run policy, which the old operator's CRD has at the top of the spec."""
    policy: Mapping[str, Any] = job["spec"].get("runPolicy") or job["spec"]
    return policy
