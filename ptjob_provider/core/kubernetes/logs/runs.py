"""Read the runs of a pod's training container from the pod's status. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.kubernetes.pods import has_ended

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

_NEVER_STARTED = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the training container. Times are in whole seconds, by the node's clock.

    Attributes:
        pod_uid: uid of the pod.
        restart_count: number of the container's restarts before this run.
        started_at: time of the start.
        ended: whether the status reported the end.
        pod: name of the pod.
        container: name of the training container.
    """

    pod_uid: str
    restart_count: int
    started_at: str
    ended: bool
    pod: str = ""
    container: str = kinds.DEFAULT.CONTAINER

    def is_same(self, other: Run | None) -> bool:
        """Return whether the other is an observation of the same run."""
        identity = (self.pod_uid, self.restart_count)
        return other is not None and identity == (other.pod_uid, other.restart_count)


def newest(pod: Manifest | None, container: str = kinds.DEFAULT.CONTAINER) -> Run | None:
    """Return the newest run of the training container; None if it has not started."""
    status = _status_of(pod, container)
    if pod is None or status is None:
        return None
    state, count = status.get("state") or {}, int(status.get("restartCount") or 0)
    running, terminated = state.get("running"), state.get("terminated")
    if running is None and terminated is None:
        terminated = (status.get("lastState") or {}).get("terminated")  # the container waits for its next start
    state_of_run = running or terminated
    if not state_of_run or not state_of_run.get("startedAt") or state_of_run["startedAt"] == _NEVER_STARTED:
        return None
    return Run(
        pod_uid=pod["metadata"]["uid"],
        restart_count=count,
        started_at=state_of_run["startedAt"],
        ended=running is None,
        pod=pod["metadata"].get("name", ""),
        container=status["name"],
    )


def before(pod: Manifest, run: Run) -> Run | None:
    """Return the run before the pod's newest one; None if the status does not show it.

    While a container waits for its next start, its last state is that of the newest run itself.
    """
    status = _status_of(pod, run.container) or {}
    terminated = (status.get("lastState") or {}).get("terminated")
    if (status.get("state") or {}).get("waiting") is not None:
        return None
    if not terminated or not terminated.get("startedAt") or terminated["startedAt"] == _NEVER_STARTED:
        return None
    return replace(
        run,
        restart_count=run.restart_count - 1,
        started_at=terminated["startedAt"],
        ended=True,
    )


def kept(run: Run, pod: Manifest | None) -> tuple[Run, bool] | None:
    """Return the run as the status shows it, and whether it is the container's previous one, if the node has its log.

    The node keeps the logs of the newest and the previous run. None if the run is neither of them.
    """
    last = newest(pod, run.container)
    if last is not None and run.is_same(last):
        return last, False
    previous = before(pod, last) if pod is not None and last is not None else None
    return (previous, True) if previous is not None and run.is_same(previous) else None


def has_stopped(pod: Manifest, container: str = kinds.DEFAULT.CONTAINER) -> bool:
    """Return whether the training container will not run again in this pod."""
    if has_ended(pod):
        return True
    terminated = ((_status_of(pod, container) or {}).get("state") or {}).get("terminated")
    if terminated is None:
        return False
    policy = pod["spec"].get("restartPolicy")
    return bool(policy == "Never" or (policy == "OnFailure" and terminated.get("exitCode") == 0))


def _status_of(pod: Manifest | None, container: str) -> Manifest | None:
    statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    containers = [each["name"] for each in ((pod or {}).get("spec") or {}).get("containers") or ()]
    if containers and container not in containers:
        container = containers[0]
    return next((each for each in statuses if each["name"] == container), None)
