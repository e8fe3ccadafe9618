"""Parse one pod as the API server has it: its containers, its state, the reason why it waits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.history.pod_history import EARLIEST, ContainerKind, Wait, WaitKind
from ptjob_provider.core.status import later, parse_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.identity import Manifest

_BROKEN = {"InvalidImageName", "ErrImageNeverPull"}
_GENERIC = {"ContainerCreating", "PodInitializing", ""}
_START_EVENTS = {
    "FailedMount",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "Pulling",
    "Pulled",
    "Created",
    "Started",
}
_RUN_ERRORS = {"RunContainerError", "CreateContainerError", "StartError", "ContainerCannotRun"}
_NO_PROGRAM = re.compile(
    r"no such file or directory|executable file not found|permission denied|exec format error|not a directory"
)
_NODES = re.compile(r"(?<!\d)\d+/\d+ nodes are available: .{0,1024}?\.(?=\s|$)")
_NOT_MADE = {"FailedCreatePod", "FailedCreate"}
"""Event reasons for pods that training-operator, or the batch Job under a TrainJob, could not create."""
_NOTHING_MADE = {"TrainJobResourcesCreationFailed", "HeadlessServiceCreationFailed", "JobCreationFailed"}
"""Event reasons for objects that Trainer or JobSet could not create and that would have created pods."""
_MAKES = {"FailedCreate", "SuccessfulCreate"}
"""Event reasons of a batch Job, which show that the batch Job exists and creates pods."""
_CONFLICT = "the object has been modified"
"""Error of a controller whose update conflicts with another; it retries at once, and mostly emits an event about it."""
_FORBIDDEN_POD = re.compile(r'pods "(?P<name>[^"]+)" is forbidden: (?P<why>.*)', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container of a pod.

    Attributes:
        kind: its purpose.
        status: its entry in the pod's status.
        restarts: the kubelet may restart it.
    """

    name: str
    kind: ContainerKind
    status: Mapping[str, Any]
    restarts: bool = True

    def state(self, name: str) -> Mapping[str, Any] | None:
        """Return the details of the state waiting, running or terminated; None if the container is in another state."""
        return (self.status.get("state") or {}).get(name)

    @property
    def last_terminated(self) -> Mapping[str, Any] | None:
        """Return the end of the previous run."""
        return (self.status.get("lastState") or {}).get("terminated")

    @property
    def restart_count(self) -> int:
        """Return the kubelet's restart count of the container in this pod; 0 if the kubelet may not restart it.

        The kubelet also counts the loss of a container, such as by eviction, that it does not start again.
        """
        return int(self.status.get("restartCount") or 0) if self.restarts else 0


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One parsed pod; `name` is the name of its replica."""

    name: str
    uid: str
    phase: str
    containers: tuple[Container, ...]
    manifest: Manifest

    @property
    def status(self) -> Mapping[str, Any]:
        """Return its status as the kubelet wrote it."""
        return self.manifest.get("status") or {}

    @property
    def training(self) -> Container | None:
        """Return the training container, once the kubelet has reported it."""
        return next((container for container in self.containers if container.kind is ContainerKind.TRAINING), None)

    @property
    def is_leaving(self) -> bool:
        """Return whether the pod is being deleted."""
        return bool(self.manifest["metadata"].get("deletionTimestamp"))

    @property
    def deletion_requested_at(self) -> datetime | None:
        """Return when its deletion was requested: deletionTimestamp minus the grace period, if not yet set to 0."""
        leaves_at = parse_instant(self.manifest["metadata"].get("deletionTimestamp"))
        grace = int(self.manifest["metadata"].get("deletionGracePeriodSeconds") or 0)
        return (later(leaves_at, -grace) or leaves_at) if leaves_at else None

    @property
    def is_over(self) -> bool:
        """Return whether none of its containers will run again."""
        return self.phase in {"Succeeded", "Failed"}

    def condition(self, name: str) -> Mapping[str, Any]:
        """Return the pod's condition of this type; {} if the pod has none."""
        conditions = (condition for condition in self.status.get("conditions") or () if condition.get("type") == name)
        return next(conditions, {})

    @property
    def is_placed(self) -> bool:
        """Return whether the pod is scheduled to a node."""
        scheduled = self.condition("PodScheduled").get("status")
        if scheduled:
            return bool(scheduled == "True")
        return bool((self.manifest.get("spec") or {}).get("nodeName") or self.containers)

    @property
    def node(self) -> str:
        """Return the name of its node; "" if it has none yet."""
        return str((self.manifest.get("spec") or {}).get("nodeName") or "")

    @property
    def disruption(self) -> str:
        """Return why something outside ended the pod, as `Reason: message`; "" if nothing did."""
        reason, message = self.status.get("reason") or "", self.status.get("message") or ""
        target = self.condition("DisruptionTarget")
        if not reason and target.get("status") == "True":
            reason, message = target.get("reason") or "", target.get("message") or ""
        return f"{reason}: {message}".rstrip(": ")


def name_of(manifest: Manifest) -> str:
    """Return a pod's own name."""
    return str(manifest["metadata"]["name"])


def read_pod(manifest: Manifest, training: str, replica_of: Callable[[Manifest], str] = name_of) -> Pod:
    """Parse a pod.

    Args:
        manifest: the pod.
        training: the name of the training container; the first one if none has this name.
        replica_of: returns the pod's replica name.
    """
    meta, status = manifest["metadata"], manifest.get("status") or {}
    return Pod(
        name=replica_of(manifest),
        uid=meta.get("uid") or "",
        phase=status.get("phase") or "Pending",
        containers=tuple(_containers(manifest, training)),
        manifest=manifest,
    )


def _containers(manifest: Manifest, training: str) -> Iterator[Container]:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    native_sidecars = {
        container["name"]
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    restarts = spec.get("restartPolicy") != "Never"
    for container in status.get("initContainerStatuses") or ():
        is_sidecar = container["name"] in native_sidecars
        kind = ContainerKind.SIDECAR if is_sidecar else ContainerKind.INIT
        yield Container(name=container["name"], kind=kind, status=container, restarts=restarts or is_sidecar)
    statuses = status.get("containerStatuses") or ()
    names = [container["name"] for container in spec.get("containers") or statuses]
    trainer = training if training in names else next(iter(names), "")
    for container in statuses:
        kind = ContainerKind.TRAINING if container["name"] == trainer else ContainerKind.SIDECAR
        yield Container(name=container["name"], kind=kind, status=container, restarts=restarts)


NOT_TAKEN = "the pod has not been taken by its scheduler,"
_USUAL_SCHEDULER = "default-scheduler"


def wait_of(pod: Pod, events: Sequence[Manifest]) -> Wait | None:
    """Return why the pod waits; None if it runs, has ended, or is being deleted after it has run."""
    if pod.is_over:
        return None
    if pod.is_leaving:
        return _leaving(pod)
    if not pod.is_placed:
        condition = pod.condition("PodScheduled")
        reason, message = condition.get("reason") or "Pending", condition.get("message") or ""
        scheduler = (pod.manifest.get("spec") or {}).get("schedulerName") or _USUAL_SCHEDULER
        if not condition and scheduler != _USUAL_SCHEDULER:  # a scheduler says why it does not place a pod
            message = f"{NOT_TAKEN} {scheduler}"
        return Wait(kind=WaitKind.QUEUED, reason=reason, message=_placement(message))
    waits = [wait for container in pod.containers if (wait := _container_wait(container))]
    specific = [wait for wait in waits if wait.reason not in _GENERIC]
    if specific:
        return specific[0]
    if waits or not pod.containers:
        generic = waits[0] if waits else Wait(kind=WaitKind.STARTING, reason="ContainerCreating")
        return _from_events(pod, events) or generic
    return _lingering(pod)


def _leaving(pod: Pod) -> Wait | None:
    """Return the wait of a pod that is deleted before it has run; if its node is lost, pod and job stay for ever."""
    if pod.training is not None and pod.training.state("waiting") is None:
        return None
    return Wait(kind=WaitKind.STARTING, reason="Terminating", message=pod.disruption)


def refusals(
    events: Sequence[Manifest], present: set[str], *, complete: bool, replica_named: Callable[[str], str] = str
) -> Iterator[tuple[str, Wait]]:
    """Yield (replica, wait) for each missing pod that the server refused to create.

    Args:
        events: events about the job, oldest first.
        present: the replicas that have a pod.
        complete: all pods of the job exist.
        replica_named: returns the replica name for a pod name.
    """
    for index, event in enumerate(events):
        reason, message = event.get("reason") or "", event.get("message") or ""
        if reason in _NOTHING_MADE and any(later.get("reason") in _MAKES for later in events[index + 1 :]):
            continue
        if reason not in _NOT_MADE | _NOTHING_MADE or _CONFLICT in message:
            continue
        match = _FORBIDDEN_POD.search(message) if reason in _NOT_MADE else None
        name, why = (replica_named(match["name"]), match["why"]) if match else ("", message)
        if name in present or (not name and complete):
            continue
        kind = WaitKind.REFUSED if "exceeded quota" in why else WaitKind.FORBIDDEN
        yield name, Wait(kind=kind, reason=reason, message=why)


def is_program_missing(reason: str, message: str) -> bool:
    """Return whether the reason and message say that a container could not start because its program is missing."""
    return reason in _RUN_ERRORS and bool(_NO_PROGRAM.search(message))


def _container_wait(container: Container) -> Wait | None:
    waiting = container.state("waiting")
    if waiting is not None:
        reason, message = waiting.get("reason") or "", waiting.get("message") or ""
        return Wait(container=container.name, kind=_kind(container, reason, message), reason=reason, message=message)
    if container.kind is not ContainerKind.INIT:
        return None
    if container.state("running") is not None:
        return Wait(container=container.name, kind=WaitKind.INIT, reason="Initializing")
    failed = (container.state("terminated") or {}).get("exitCode")
    return Wait(container=container.name, kind=WaitKind.CRASH_LOOP, reason="Error") if failed else None


def _kind(container: Container, reason: str, message: str) -> WaitKind:
    last = container.last_terminated or {}
    never_starts = is_program_missing(last.get("reason") or "", last.get("message") or "")
    if reason in _BROKEN or never_starts or is_program_missing(reason, message):
        return WaitKind.BROKEN
    if reason == "CrashLoopBackOff":
        return WaitKind.CRASH_LOOP
    return WaitKind.STARTING if reason in _GENERIC else WaitKind.STUCK


def _from_events(pod: Pod, events: Sequence[Manifest]) -> Wait | None:
    starts = [event for event in events if _is_about(event, pod) and event.get("reason") in _START_EVENTS]
    if not starts:
        return None
    newest = max(starts, key=event_time)
    reason = newest["reason"]
    if reason == "Pulling":
        return Wait(kind=WaitKind.PULLING, reason=reason, message=newest.get("message") or "")
    if reason.startswith("Failed"):
        return Wait(kind=WaitKind.STUCK, reason=reason, message=newest.get("message") or "")
    return None


def _is_about(event: Manifest, pod: Pod) -> bool:
    about = event.get("involvedObject") or {}
    return about.get("name") == name_of(pod.manifest) and about.get("uid", pod.uid) == pod.uid


def event_time(event: Manifest) -> datetime:
    """Return the instant of an event: series.lastObservedTime, lastTimestamp or eventTime; EARLIEST if all are missing.

    Servers fill different fields, and only lastTimestamp has whole seconds, so the texts themselves cannot be sorted.
    """
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return parse_instant(text) or EARLIEST


def _lingering(pod: Pod) -> Wait | None:
    ended = (pod.training.state("terminated") if pod.training else None) or {}
    if ended.get("exitCode") != 0:
        return None
    native = {container["name"] for container in pod.status.get("initContainerStatuses") or ()}
    still = [
        container.name
        for container in pod.containers
        if container.state("running") is not None and container.name not in native
    ]
    return Wait(container=still[0], kind=WaitKind.SIDECAR, reason="SidecarRunning") if still else None


def _placement(message: str) -> str:
    """Return the scheduler's reason why no node fits, without its notes on preemption and claims."""
    match = _NODES.match(message)
    return match[0] if match else message.partition(" preemption:")[0]
