"""Parse `status.tasks`: the pods of a job's replicas, their containers' ends, and their recreations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds.kind import Told
from ptjob_provider.core.kinds.pytorchtrainingjob.reading import replicas
from ptjob_provider.core.kinds.pytorchtrainingjob.words import replica_specs, trainer_of
from ptjob_provider.core.recorder import ContainerKind, Termination

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_INDEX = re.compile(r"-(\d+)$")
_STOPPED = 143
"""Exit code of a container that obeys the signal of a pod's deletion."""


def told(job: Mapping[str, Any]) -> Told:
    """Return the replica states in the status, the only source of the pods' names."""
    status = job.get("status") or {}
    tasks = status.get("tasks") or ()
    found = list(_replicas(job, tasks))
    trainers = {str(spec.get("type") or "worker"): trainer_of(spec["template"]) for spec in replica_specs(job)}
    counted = sum(int(task.get("restartCount") or 0) for task in tasks)
    return Told(
        pods={str(pod["name"]): replica for _, replica, pod in found},
        ends=tuple(end for role, replica, pod in found for end in _failure(replica, pod, trainers[role])),
        restarts=counted or int(status.get("backoffCount") or 0),
    )


def _replicas(job: Mapping[str, Any], tasks: Any) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield role, name and pod of each replica that has one: by its pod's number, else by its position."""
    asked_for = {each.name for each in replicas(job)}
    for task in tasks:
        role = str(task.get("type") or "worker")
        for place, pod in enumerate(task.get("replicas") or ()):
            number = _INDEX.search(pod.get("name") or "")
            replica = f"{job['metadata']['name']}-{role}-{number[1] if number else place}"
            if pod.get("name") and replica in asked_for:
                yield role, replica, pod


def _failure(replica: str, pod: Mapping[str, Any], trainer: str) -> Iterator[Termination]:
    """Yield a pod's failure: by its training container's exit code, else by another one's."""
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
