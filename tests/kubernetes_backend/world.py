"""A job, its pods and its events as a watch last reported them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds

if TYPE_CHECKING:
    from collections.abc import Iterator

JOB = "digits-1a2b3c4d"
"""The name of every recorded job."""
JOB_LABELS = ("training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name")


@dataclass(kw_only=True)
class World:
    """The job, its pods and their events, after the last changes of a watch."""

    job: dict[str, Any] | None = None
    is_deleted: bool = False
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    began: float = 0.0

    def take(self, change: dict[str, Any]) -> bool:
        """Apply one change of a watch; return False if it is about something else."""
        found = change["object"]
        if found["kind"] in kinds.KINDS:
            self.began = self.began if self.job else time.monotonic()
            self.is_deleted = change["type"] == "DELETED"
            self.job = found
            return True
        if found["kind"] == "Pod" and JOB in _jobs_of(found):
            return _put(self.pods, change)
        if found["kind"] == "Event" and found["involvedObject"].get("name", "").startswith(JOB):
            return _put(self.events, change)
        return False

    @property
    def seconds(self) -> float:
        """The job's age."""
        return time.monotonic() - self.began if self.job else 0.0

    @property
    def has_ended(self) -> bool:
        """True if the job has ended or is gone."""
        return self.is_deleted or (self.job is not None and kinds.read_status(self.job).phase.is_terminal)

    def statuses(self, replica: str = "") -> Iterator[dict[str, Any]]:
        """Yield the statuses of the containers of one replica (`worker-0`), or of all."""
        for pod in self.pods.values():
            if self.job is not None and kinds.kind_of(self.job).replica_of(pod).endswith(replica):
                status = pod.get("status") or {}
                yield from status.get("initContainerStatuses") or ()
                yield from status.get("containerStatuses") or ()

    def runs(self, replica: str, container: str = "") -> bool:
        """Return whether this container of the replica runs; by default, the training container."""
        container = container or (kinds.kind_of(self.job).CONTAINER if self.job else "")
        return any(one["name"] == container and one["state"].get("running") for one in self.statuses(replica))

    def restarts(self) -> int:
        """The kubelet's restarts of containers, in all pods."""
        return sum(one["restartCount"] for one in self.statuses())


def _jobs_of(pod: dict[str, Any]) -> set[str]:
    labels = pod["metadata"].get("labels", {})
    return {labels.get(label, "") for label in JOB_LABELS}


def _put(known: dict[str, dict[str, Any]], change: dict[str, Any]) -> bool:
    found = change["object"]
    name = found["metadata"]["name"]
    if change["type"] == "DELETED":
        known.pop(name, None)
    else:
        known[name] = found
    return True
