"""Update the pod history with one observation. Repeating an observation changes nothing but the clocks of waits."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.code.program import is_truncated, return_value_in
from ptjob_provider.core.history.codec import MAX_TERMINATIONS, bounded
from ptjob_provider.core.history.pod_history import (
    EARLIEST,
    WORKLOAD,
    ContainerKind,
    PodHistory,
    Removal,
    Restarts,
    Termination,
    Wait,
    Waiting,
    WaitKind,
)
from ptjob_provider.core.history.pods import (
    Container,
    Pod,
    event_time,
    name_of,
    read_pod,
    refusals,
    wait_of,
)
from ptjob_provider.core.in_pod import sync_code
from ptjob_provider.core.outgoing import readable
from ptjob_provider.core.status import parse_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.identity import Manifest


_MESSAGE_BYTES = 4096
"""The kubelet's limit for one termination message."""
_LASTING = timedelta(minutes=10)
"""Length of a run that resets the kubelet's back-off; failures before and after it are of different crash loops."""
_MAX_NOTICES = 20
_PASSING = {WaitKind.INIT, WaitKind.SIDECAR, WaitKind.CRASH_LOOP}
"""Waits that cannot block another pod."""
_MAX_REVISIONS = 4
_CUT = (
    "the function's return value is lost: the kubelet keeps 12 KiB of a pod's termination messages, shared by all its "
    "containers; write the value to a claim and return its path"
)
_DIFFER = "replicas have fetched different commits, as their branch went on meanwhile; name a `revision` with `code`"


def observe(
    history: PodHistory,
    *,
    pods: Sequence[Manifest],
    events: Sequence[Manifest] = (),
    now: datetime,
    container: str = "pytorch",
    replica_of: Callable[[Manifest], str] = name_of,
    replica_named: Callable[[str], str] = str,
    replicas: int = 0,
) -> PodHistory:
    """Return the history updated with these pods and events; the ends of deleted pods are kept.

    Args:
        history: the previous history; not changed.
        pods: the job's current pods, including terminating ones.
        events: core/v1 Events about the job and its pods that the server still has.
        now: the time of the observation by this process's clock.
        container: the name of the training container; if a pod has none of this name, its first container is used.
        replica_of: returns the replica name of a pod.
        replica_named: returns the replica name for a pod name.
        replicas: the number of pods that the job requests; 0: as many as exist.
    """
    before = history
    parsed = sorted((read_pod(pod, container, replica_of) for pod in pods), key=_created)
    history = _with_removals(history, parsed, events, now)
    newest = {pod.name: pod for pod in parsed}
    for pod in parsed:
        if newest[pod.name] is not pod and _is_recorded(history, pod):
            continue  # a newer pod has replaced this one, and its restarts were counted
        history = _with_restarts(history, pod)
        history = _with_returned(_with_revision(_with_terminations(history, pod, now), pod), pod)
    for end in _reported_ends(events, container):
        history = _with_reported_end(history, end)
    present = list(newest.values())
    history = replace(
        _with_present(history, present),
        notices=_notices(history, events),
        queue=_queue_message(events) or history.queue,
    )
    waits = _waits(history, present, events, replica_named=replica_named, replicas=replicas)
    history = replace(history, waiting=_waiting(history, waits, now=now))
    history = replace(history, held_up=_held_up(before, history))
    return bounded(_with_clocks(history, present, now=now, replicas=replicas))


def with_notice(history: PodHistory, notice: str) -> PodHistory:
    """Return the history with the notice, which is reported once."""
    return replace(history, notices=tuple(dict.fromkeys([*history.notices, notice]))[:_MAX_NOTICES])


def _created(pod: Pod) -> str:
    return pod.manifest["metadata"].get("creationTimestamp") or ""


def _is_recorded(history: PodHistory, pod: Pod) -> bool:
    return pod.is_over and any(end.pod_uid == pod.uid for end in history.terminations)


def _with_present(history: PodHistory, pods: Sequence[Pod]) -> PodHistory:
    """Return the history with the replicas that are scheduled, terminating, running and finished now."""
    nodes = {name: (name, node, start) for name, node, start in history.nodes}
    nodes |= {pod.name: (pod.name, pod.node, _running_since(pod)) for pod in pods if pod.node}
    return replace(
        history,
        nodes=tuple(nodes.values()),
        placed=tuple(pod.name for pod in pods if pod.is_placed),
        leaving=tuple(pod.uid for pod in pods if pod.is_leaving),
        running=tuple(pod.name for pod in pods if not pod.is_over and _is_in(pod, "running")),
        finished=tuple(pod.name for pod in pods if pod.is_over or _is_in(pod, "terminated")),
    )


def _is_in(pod: Pod, state: str) -> bool:
    return pod.training is not None and pod.training.state(state) is not None


def _running_since(pod: Pod) -> str:
    running = pod.training and pod.training.state("running")
    return readable((running or {}).get("startedAt"))


def _notices(history: PodHistory, events: Sequence[Manifest]) -> tuple[str, ...]:
    texts = [readable(event.get("message")) for event in events if event.get("reason") == "NotApplied"]
    return tuple(dict.fromkeys([*history.notices, *texts]))[:_MAX_NOTICES]


def _queue_message(events: Sequence[Manifest]) -> str:
    events_of_queue = (event for event in events if (event.get("involvedObject") or {}).get("kind") == WORKLOAD)
    return next((_last_bytes(readable(event.get("message")), _MESSAGE_BYTES) for event in events_of_queue), "")


# --- ends


def _with_restarts(history: PodHistory, pod: Pod) -> PodHistory:
    known = [entry.container for entry in history.restart_counts if entry.replica == pod.name]
    counts = {**dict.fromkeys(known, 0), **{each.name: each.restart_count for each in pod.containers}}
    own = tuple(_restarts(history, pod, name, count) for name, count in counts.items())
    others = tuple(entry for entry in history.restart_counts if entry.replica != pod.name)
    return replace(history, restart_counts=others + own)


def _restarts(history: PodHistory, pod: Pod, container: str, count: int) -> Restarts:
    before = history.restarts_of(pod.name, container)
    if before is not None and before.pod_uid == pod.uid:
        return replace(before, count=max(before.count, count))
    crashes = [
        end.run + 1
        for end in history.terminations
        if (end.replica == pod.name and end.pod_uid != pod.uid and end.container in {container, ""})
        and (end.failed and not end.stopped)
    ]
    settled = before.settled if before else 0
    earlier = max(crashes, default=before.earlier if before else 0)
    return Restarts(
        replica=pod.name, container=container, pod_uid=pod.uid, count=count, earlier=earlier, settled=settled
    )


def _with_terminations(history: PodHistory, pod: Pod, now: datetime) -> PodHistory:
    ends = [end for container in pod.containers for end in _ends(history, pod, container) if _counts(end)]
    if pod.phase == "Failed" and not _explains_failure(pod):
        ends.append(_pod_end(history, pod))
    for end in ends:
        history = _with_end(history, end, now)
    return history


def _counts(end: Termination) -> bool:
    """Return whether the end tells anything; a large job has more init containers that succeed than ends are kept."""
    return end.failed or end.kind is not ContainerKind.INIT


def _with_revision(history: PodHistory, pod: Pod) -> PodHistory:
    """Return the history with the code revision that the pod has fetched."""
    ends = (
        container.state("terminated") or {} for container in pod.containers if container.name == sync_code.CONTAINER
    )
    fetched = {sync_code.revision_in(readable(end.get("message"))) for end in ends} - {""}
    history = replace(history, revisions=tuple(sorted({*history.revisions, *fetched})[:_MAX_REVISIONS]))
    return with_notice(history, _DIFFER) if len(history.revisions) > 1 else history


def _with_returned(history: PodHistory, pod: Pod) -> PodHistory:
    """Return the history with the return value of the pod's function; only rank 0 reports a value."""
    ended = (pod.training.state("terminated") if pod.training else None) or {}
    message = readable(ended.get("message"))
    told: list[str] = []
    history = replace(history, returned=return_value_in(message, told.append) or history.returned)
    for text in [*told, *([_CUT] if is_truncated(message) else [])]:
        history = with_notice(history, text)
    return history


def _explains_failure(pod: Pod) -> bool:
    """Return whether a container has failed; a pod that was evicted or lost its node may fail without one."""
    return any((container.state("terminated") or {}).get("exitCode") for container in pod.containers)


def _ends(history: PodHistory, pod: Pod, container: Container) -> Iterator[Termination]:
    """Yield the ends of the container's previous and current runs, if they have ended.

    The number of the previous run is the restart count minus 1. While the container waits for its next start, it is the
    restart count itself: `convertToAPIContainerStatuses` then moves the end to lastState and keeps the count.
    """
    count = container.restart_count
    previous = container.last_terminated
    if previous:
        yield _end(history, pod, container, previous, count if container.state("waiting") is not None else count - 1)
    current = container.state("terminated")
    if current:
        yield _end(history, pod, container, current, count)


def _end(history: PodHistory, pod: Pod, container: Container, ended: Mapping[str, Any], count: int) -> Termination:
    restarts = history.restarts_of(pod.name, container.name)
    started, finished = ended.get("startedAt") or "", ended.get("finishedAt") or ""
    message = readable(ended.get("message"))
    run_id = readable(ended.get("containerID")).rpartition("/")[2][:12] or f"{started}+{finished}"
    finished_at = _instant(finished)
    return Termination(
        replica=pod.name,
        pod_uid=pod.uid,
        key=f"{pod.uid}/{container.name}/{run_id}",
        container=container.name,
        kind=container.kind,
        run=(restarts.earlier if restarts else 0) + max(count, 0),
        restart_count=max(count, 0),
        exit_code=ended.get("exitCode"),
        signal=int(ended.get("signal") or 0),
        reason=readable(ended.get("reason")),
        message="" if return_value_in(message) else _last_bytes(message, _MESSAGE_BYTES),
        disruption=readable(pod.disruption),
        stopped=_was_stopped(history, pod, finished_at),
        node=pod.node,
        started_at=_instant(started),
        finished_at=finished_at,
    )


def _pod_end(history: PodHistory, pod: Pod) -> Termination:
    return Termination(
        replica=pod.name,
        pod_uid=pod.uid,
        key=f"{pod.uid}//",
        disruption=pod.disruption,
        stopped=_was_stopped(history, pod, None),
        node=pod.node,
        finished_at=_instant(pod.condition("DisruptionTarget").get("lastTransitionTime")),
    )


def _was_stopped(history: PodHistory, pod: Pod, finished_at: datetime | None) -> bool:
    """Return whether the pod was already being deleted when it ended.

    That is so if the pod was observed terminating before, or has ended later than its deletion was requested. An end in
    the same second does not count: it may have caused the deletion.
    """
    requested_at = pod.deletion_requested_at
    return requested_at is not None and (
        pod.uid in history.leaving or finished_at is None or finished_at > requested_at
    )


def _with_end(history: PodHistory, end: Termination, now: datetime) -> PodHistory:
    known = {other.key: other for other in history.terminations}
    before = known.get(end.key)
    if before is not None:
        # The pod's own reason may be written after the container's end. Everything else of an end stays as it was.
        known[end.key] = replace(before, disruption=end.disruption or before.disruption)
        return replace(history, terminations=tuple(known.values()))
    if end.finished_at is None and len(known) >= MAX_TERMINATIONS:
        return history  # it may have been dropped before; with the time of each look it would displace another
    if end.container and end.failed:
        known.pop(f"{end.pod_uid}//", None)
        known.pop(_reported_key(end.replica), None)
    known[end.key] = replace(end, finished_at=end.finished_at or now)
    return _settled(replace(history, terminations=tuple(known.values())), known[end.key])


def _held_up(before: PodHistory, after: PodHistory) -> tuple[Waiting, ...]:
    """Return the waits of the other pods when an init container first failed, which may have waited for one of them."""
    gave_up = {end.replica for end in after.terminations if _gave_up(end)}
    if before.held_up or gave_up <= {end.replica for end in before.terminations if _gave_up(end)}:
        return before.held_up
    waiting = before.waiting or after.waiting
    return tuple(wait for wait in waiting if wait.replica not in gave_up and wait.kind not in _PASSING)


def _gave_up(end: Termination) -> bool:
    return end.kind is ContainerKind.INIT and end.failed and not end.stopped


def _settled(history: PodHistory, end: Termination) -> PodHistory:
    """Return the history with a new crash loop begun, if this end is of a long run."""
    if end.started_at is None or end.ended_at - end.started_at < _LASTING:
        return history
    container = (end.replica, end.container)
    restarts = tuple(
        replace(entry, settled=max(entry.settled, end.run + 1))
        if (entry.replica, entry.container) == container
        else entry
        for entry in history.restart_counts
    )
    return replace(history, restart_counts=restarts)


def _last_bytes(text: str, limit: int) -> str:
    data = text.encode()
    return text if len(data) <= limit else data[-limit:].decode("utf-8", "ignore")


# --- removals


def _with_removals(history: PodHistory, pods: Sequence[Pod], events: Sequence[Manifest], now: datetime) -> PodHistory:
    """Return the history with the deletions of running pods, except those that the operator's events report as its own.

    These events may be observed later than the deletions.
    """
    if not history.hears_operator and not _pods_in(events, "SuccessfulCreatePod"):
        return history
    known = {removal.pod_uid: removal for removal in history.removals}
    for removal in [*_leaving(pods), *_gone(history, pods, now)]:
        before = known.get(removal.pod_uid, removal)  # a pod that is gone shows no reason and no node any more
        reason, node = removal.disruption or before.disruption, removal.node or before.node
        known[removal.pod_uid] = replace(before, disruption=reason, node=node)
    deleted, present = _pods_in(events, "SuccessfulDeletePod"), {pod.name: pod.uid for pod in pods}
    removals = (
        removal for removal in known.values() if present.get(removal.replica, removal.pod_uid) == removal.pod_uid
    )
    removals = (removal for removal in removals if removal.replica not in deleted)
    return replace(history, hears_operator=True, removals=tuple(removals), operator_deleted=tuple(sorted(deleted)))


def _leaving(pods: Sequence[Pod]) -> Iterator[Removal]:
    for pod in pods:
        if pod.deletion_requested_at and (_is_in(pod, "running") or _ended_after(pod, pod.deletion_requested_at)):
            yield Removal(
                replica=pod.name,
                pod_uid=pod.uid,
                requested_at=pod.deletion_requested_at,
                disruption=readable(pod.disruption),
                node=pod.node,
            )


def _ended_after(pod: Pod, requested_at: datetime) -> bool:
    ended = pod.training.state("terminated") if pod.training else None
    finished_at = _instant((ended or {}).get("finishedAt"))
    return finished_at is not None and finished_at > requested_at


def _gone(history: PodHistory, pods: Sequence[Pod], now: datetime) -> Iterator[Removal]:
    """Yield the removals of pods that ran at the last observation and are gone: deleted without a grace period."""
    present = {pod.uid for pod in pods}
    uids = {entry.replica: entry.pod_uid for entry in history.restart_counts}
    for name in history.running:
        if uids.get(name, "") not in present:
            yield Removal(replica=name, pod_uid=uids.get(name, ""), requested_at=now)


# --- waits


def _waits(
    history: PodHistory,
    pods: Sequence[Pod],
    events: Sequence[Manifest],
    *,
    replica_named: Callable[[str], str],
    replicas: int,
) -> list[tuple[str, str, Wait]]:
    """Return (replica, uid of its pod or "", wait) for each replica that waits; "" for the whole job."""
    complete = len(pods) >= max(replicas, 1)
    if complete and all(pod.is_over and not pod.is_leaving for pod in pods):
        return [("", "", Wait(kind=WaitKind.OVER, reason="Ended"))]
    waits = [(pod.name, pod.uid, wait) for pod in pods if (wait := wait_of(pod, events))]
    present = {pod.name for pod in pods} | {entry.replica for entry in history.restart_counts}
    refused = refusals(sorted(events, key=event_time), present, complete=complete, replica_named=replica_named)
    return waits + [(name, "", wait) for name, wait in dict(refused).items()]


def _waiting(history: PodHistory, waits: Sequence[tuple[str, str, Wait]], *, now: datetime) -> tuple[Waiting, ...]:
    blocked = any(wait.kind not in {WaitKind.INIT, WaitKind.SIDECAR} for _, _, wait in waits)
    timed = (_timed(history, name, uid, wait, now=now, blocked=blocked) for name, uid, wait in waits)
    return tuple(sorted(timed, key=lambda wait: wait.replica))


def _timed(history: PodHistory, name: str, uid: str, wait: Wait, *, now: datetime, blocked: bool) -> Waiting:
    """Return a wait with its clock, which starts when this kind of wait of this pod is first observed.

    A running init container usually waits for another replica; while that replica is blocked, the init container's
    clock stands at 0.
    """
    message = _last_bytes(readable(wait.message), _MESSAGE_BYTES)
    new = Waiting(**{**asdict(wait), "message": message}, replica=name, pod_uid=uid, since=now)
    before = next((earlier for earlier in history.waiting if (earlier.replica, earlier.pod_uid) == (name, uid)), None)
    if before is None or (wait.kind is WaitKind.INIT and blocked):
        return new
    return _continued(before, new)


def _continued(before: Waiting, new: Waiting) -> Waiting:
    if (before.kind, new.kind) == (WaitKind.PULLING, WaitKind.STARTING):
        return before  # the event about the pull has expired, and the kubelet's own reason is vague
    if before.kind is new.kind and _is_vaguer(new, before):
        return before
    clock = {WaitKind.STARTING, WaitKind.STUCK}
    return replace(new, since=before.since) if before.kind is new.kind or {before.kind, new.kind} <= clock else new


def _is_vaguer(new: Waiting, before: Waiting) -> bool:
    """Return whether the new reason is the back-off after the old one; the kubelet alternates between the two."""
    return before.container == new.container and (before.reason, new.reason) == ("ErrImagePull", "ImagePullBackOff")


def _with_clocks(history: PodHistory, pods: Sequence[Pod], *, now: datetime, replicas: int) -> PodHistory:
    starts = [runs_of_pod for pod in pods if (runs_of_pod := _starts(pod))]
    kinds = {wait.kind for wait in history.waiting}
    is_queued = bool(kinds & {WaitKind.QUEUED, WaitKind.REFUSED}) or (not pods and WaitKind.FORBIDDEN not in kinds)
    runs = len(starts) >= max(replicas, len(pods), 1)
    return replace(
        history,
        queued_since=(history.queued_since or now) if is_queued else None,
        first_running_at=history.first_running_at or min((runs_of_pod[0] for runs_of_pod in starts), default=None),
        all_running_at=history.all_running_at or (max(runs_of_pod[-1] for runs_of_pod in starts) if runs else None),
    )


def _starts(pod: Pod) -> list[datetime]:
    """Return when the training container's last two runs started, as far as the kubelet reports them.

    For a container that waits for its next start in a crash loop, that is the previous run only.
    """
    if pod.training is None:
        return []
    runs = (pod.training.last_terminated, pod.training.state("running"), pod.training.state("terminated"))
    return [at for run in runs if (at := _instant((run or {}).get("startedAt")))]


def _instant(text: str | None) -> datetime | None:
    """Parse an instant; None for 1970, the start time of a container that the runtime could not start."""
    instant = parse_instant(text)
    return instant if instant and instant.timestamp() > 0 else None


def _reported_key(replica: str) -> str:
    """Return the key of a replica's end that was reported, not observed; an observed end replaces it."""
    return f"reported/{replica}"


def _with_reported_end(history: PodHistory, end: Termination) -> PodHistory:
    """Return the history with a reported end, unless a failure of this replica is recorded already."""
    if any(other.replica == end.replica and other.failed for other in history.terminations):
        return history
    return replace(history, terminations=(*history.terminations, replace(end, key=_reported_key(end.replica))))


def with_reported(history: PodHistory, ends: Iterable[Termination], *, restarts: int, at: datetime) -> PodHistory:
    """Return the history with the failures and restarts that the job's own status reports.

    Args:
        history: the observed history; not changed.
        ends: failures of containers, one per replica; `at` is used for those without an instant.
        restarts: number of reported restarts; the observed number is used if it is higher.
        at: the job's end, or the time of the observation before it.
    """
    for end in ends:
        history = _with_reported_end(history, replace(end, finished_at=end.finished_at or at))
    return bounded(replace(history, restarts_reported=max(history.restarts_reported, restarts)))


_END = re.compile(
    r"Error pod (?P<pod>\S+) container (?P<container>\S+) exitCode: (?P<code>\d+) terminated message: ?(?P<text>.*)",
    re.DOTALL,
)


def _reported_ends(events: Sequence[Manifest], training: str) -> Iterator[Termination]:
    """Yield the container failures that the operator reports; `training` names the training container."""
    for event in sorted(events, key=event_time):
        match = _END.match(event.get("message") or "") if event.get("reason") == "Error" else None
        if match is None:
            continue
        at = event_time(event)
        yield Termination(
            replica=match["pod"],
            container=match["container"],
            kind=ContainerKind.TRAINING if match["container"] == training else ContainerKind.SIDECAR,
            exit_code=int(match["code"]),
            message=readable(match["text"]),
            finished_at=None if at == EARLIEST else at,
        )


def _pods_in(events: Sequence[Manifest], reason: str) -> set[str]:
    """Return the pods that the operator names in its events with this reason."""
    return {str(event.get("message")).rpartition(" ")[2] for event in events if event.get("reason") == reason}
