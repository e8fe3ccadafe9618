"""Read a PyTorchTrainingJob of `batch.tensorstack.dev/v1beta1`: its status, replicas and pods."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.history import ContainerKind, Termination
from ptjob_provider.core.kinds.kind import Kind, Reported, numbered, owner_in
from ptjob_provider.core.kinds.pytorchtrainingjob.render import (
    API_VERSION,
    CONTAINER,
    KIND,
    lacking,
    render,
    replica_specs,
    trainer_of,
)
from ptjob_provider.core.status import JobPhase, JobStatus, parse_instant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import datetime

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds.kind import PodOwner, Replica

_OWNER = "tensorstack.dev/owner-name"
_RANDOM = re.compile(r"-[0-9a-f]{5}-(?=[a-z])")


_PHASES = {
    "Running": JobPhase.RUNNING,
    "Paused": JobPhase.SUSPENDED,
    "Succeeded": JobPhase.SUCCEEDED,
    "Failed": JobPhase.FAILED,
}
"""T9k's phases → ours. In its other phases, Pending, Resuming and Unknown, the job has not started."""

_ENDS = {"Failed": JobPhase.FAILED, "Completed": JobPhase.SUCCEEDED}
_DETAILS = {
    JobPhase.FAILED: ("Failed", "ReplicaFailure"),
    JobPhase.SUCCEEDED: ("Completed",),
    JobPhase.SUSPENDED: ("Paused",),
}
"""Conditions with the reason and the message of a phase, in order of precedence."""


_INDEX = re.compile(r"-(\d+)$")
_STOPPED = 143
"""Exit code of a container that ends by SIGTERM, which the deletion of its pod sends."""


class PyTorchTrainingJob(Kind):
    """PyTorchTrainingJob of `batch.tensorstack.dev/v1beta1`, as run by T9k's platform."""

    KIND = KIND
    API_VERSION = API_VERSION
    PLURAL = "pytorchtrainingjobs"
    OPERATOR = "T9k's job controller"
    CONTAINER = CONTAINER
    POD_LABEL = _OWNER
    STOP_RUNNING_PODS = {"spec": {"runPolicy": {"cleanUpPolicy": "Unfinished"}}}  # noqa: RUF012 - never changed

    rendered = staticmethod(render)
    lacking = staticmethod(lacking)

    def read_status(self, job: Mapping[str, Any]) -> JobStatus:
        """Derive the job's status from its object: from the phase or, if that is missing, the conditions."""
        status = job.get("status") or {}
        true = {each["type"]: each for each in status.get("conditions") or [] if each.get("status") == "True"}
        phase = _PHASES.get(status.get("phase") or "", JobPhase.PENDING)
        if phase is JobPhase.PENDING:
            phase = next((end for name, end in _ENDS.items() if name in true), phase)
        deciding: Mapping[str, Any] = next((true[name] for name in _DETAILS.get(phase, ()) if name in true), {})
        running = (true.get("Running") or true.get("Initialized") or {}).get("lastTransitionTime")
        has_run = phase in {JobPhase.RUNNING, JobPhase.SUCCEEDED, JobPhase.FAILED}
        return JobStatus(
            phase=phase,
            reason=deciding.get("reason") or "",
            message=deciding.get("message") or "",
            created_at=parse_instant(job["metadata"].get("creationTimestamp")),
            started_at=parse_instant(running or job["metadata"].get("creationTimestamp")) if has_run else None,
            finished_at=parse_instant(deciding.get("lastTransitionTime")) if phase.is_terminal else None,
        )

    def running_since(self, job: Mapping[str, Any]) -> datetime | None:
        """Return the time of the condition `Running`; None unless it is true."""
        conditions = (job.get("status") or {}).get("conditions") or []
        starts = (each for each in conditions if (each["type"], each.get("status")) == ("Running", "True"))
        start: Mapping[str, Any] = next(starts, {})
        return parse_instant(start.get("lastTransitionTime"))

    def replicas(self, manifest: Mapping[str, Any]) -> tuple[Replica, ...]:
        """Return all replicas in the order of their roles; the first one is the master."""
        roles = ((str(spec.get("type") or "worker"), spec) for spec in replica_specs(manifest))
        return tuple(numbered(manifest["metadata"]["name"], roles))

    def is_restarted(self, manifest: Mapping[str, Any], replica: str) -> bool:
        """Return whether the controller may recreate a failed replica; False if the job no longer has the replica."""
        role = next((each.role for each in self.replicas(manifest) if each.name == replica), None)
        if role is None:
            return False
        spec = next(each for each in replica_specs(manifest) if (each.get("type") or "worker") == role)
        return bool(spec.get("restartPolicy") != "Never")

    def stops_by_itself(self, job: Mapping[str, Any]) -> bool:
        """Return whether the job's policy makes the controller stop the remaining pods when the job ends."""
        return (job["spec"].get("runPolicy") or {}).get("cleanUpPolicy") in {"Unfinished", "All"}

    def suspended(self, *, suspend: bool) -> Manifest:
        """Return the patch that suspends or resumes the job."""
        return {"spec": {"runMode": {"pause": {"enabled": suspend}}}}

    def owner_of(self, pod: Mapping[str, Any]) -> PodOwner:
        """Return the pod's job: by the pod's owner reference, else by its label."""
        owner, labels = owner_in(pod, KIND), pod["metadata"].get("labels") or {}
        return owner if owner.name else replace(owner, name=str(labels.get(_OWNER) or ""))

    def replica_of(self, pod: Mapping[str, Any]) -> str:
        """Return the pod's replica name: the pod's name without the five random letters."""
        name, owner = str(pod["metadata"]["name"]), self.owner_of(pod).name
        rest = name.removeprefix(owner)
        return owner + _RANDOM.sub("-", rest, count=1) if owner and rest != name else name

    def reported(self, job: Mapping[str, Any]) -> Reported:
        """Return the replica states in the job's status, which alone has the names of the pods."""
        status = job.get("status") or {}
        tasks = status.get("tasks") or ()
        pods = list(_replicas(job, tasks, {each.name for each in self.replicas(job)}))
        trainers = {str(spec.get("type") or "worker"): trainer_of(spec["template"]) for spec in replica_specs(job)}
        counted = sum(int(task.get("restartCount") or 0) for task in tasks)
        return Reported(
            pods={str(pod["name"]): replica for _, replica, pod in pods},
            ends=tuple(end for role, replica, pod in pods for end in _failure(replica, pod, trainers[role])),
            restarts=counted or int(status.get("backoffCount") or 0),
        )

    def priority(self, manifest: Mapping[str, Any]) -> str:
        """Return the job's priority number in T9k's queue, else the pods' priority class."""
        queue = (manifest["spec"].get("scheduler") or {}).get("t9kScheduler") or {}
        pod = self.rank0_template(manifest).get("spec") or {}
        return str(queue.get("priority") or pod.get("priorityClassName") or "")

    def templates(self, manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the template of every role, rank 0's first."""
        yield from (spec["template"] for spec in replica_specs(manifest))


def _replicas(
    job: Mapping[str, Any], tasks: Any, requested: Collection[str]
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield role, name and pod of each replica with a pod. Its index is in the pod's name, else it is the position."""
    for task in tasks:
        role = str(task.get("type") or "worker")
        for position, pod in enumerate(task.get("replicas") or ()):
            number = _INDEX.search(pod.get("name") or "")
            replica = f"{job['metadata']['name']}-{role}-{number[1] if number else position}"
            if pod.get("name") and replica in requested:
                yield role, replica, pod


def _failure(replica: str, pod: Mapping[str, Any], trainer: str) -> Iterator[Termination]:
    """Yield a pod's failed container, if any: the training container if it failed, else another one."""
    containers = [each for each in pod.get("containers") or () if each.get("exitCode")]
    for each in sorted(containers, key=lambda each: each.get("name") != trainer)[:1]:
        code = int(each["exitCode"])
        yield Termination(
            replica=replica,
            pod_uid=str(pod.get("uid") or ""),
            container=str(each.get("name") or ""),
            kind=ContainerKind.TRAINING if each.get("name") == trainer else ContainerKind.SIDECAR,
            exit_code=code,
            stopped=pod.get("phase") == "Deleted" and code == _STOPPED,
        )
