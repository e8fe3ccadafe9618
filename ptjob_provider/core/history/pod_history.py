"""Types of the pod history: ends, waits, removals, restarts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from ptjob_provider.core.containment import contained

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

WORKLOAD = "Workload"
"""Kind of the involved object of Kueue's events about a job."""

EARLIEST = datetime.min.replace(tzinfo=UTC)
"""Sorts before every real instant."""


_WITHOUT_START = {None, 128, 137}
"""Exit codes that a container may have without having started. None: unknown; 128: the runtime could not start the
container; 137: the kubelet did not find the container when its pod was deleted."""


class ContainerKind(StrEnum):
    """Purpose of a container."""

    TRAINING = "training"
    INIT = "init"
    SIDECAR = "sidecar"


class WaitKind(StrEnum):
    """Kind of a wait; each has its own clock and its own limit, see `diagnosis.ending`."""

    QUEUED = "queued"
    """The pod has no node yet: it is unschedulable or gated, or its claim is not bound."""
    REFUSED = "refused"
    """The pod could not be created: the namespace's quota is used up."""
    FORBIDDEN = "forbidden"
    """The pod may not be created: PodSecurity, a webhook, a missing service account."""
    BROKEN = "broken"
    """The container can never start: the image's name is invalid, or the program is missing."""
    STUCK = "stuck"
    """The kubelet retries: the image cannot be pulled, a Secret is missing, a volume cannot be mounted."""
    STARTING = "starting"
    """The pod is scheduled and starts, without a known problem."""
    PULLING = "pulling"
    """The image is being pulled."""
    INIT = "init"
    """An init container runs."""
    CRASH_LOOP = "crash-loop"
    """The container failed and will be restarted."""
    SIDECAR = "sidecar"
    """The training container has exited with 0, and another container of the pod still runs."""
    OVER = "over"
    """All pods of the job have ended, and its controller has neither replaced one nor ended the job."""


@dataclass(frozen=True, kw_only=True)
class Termination:
    """End of one container, or of a pod that ended without container statuses.

    Attributes:
        replica: the pod's name.
        pod_uid: distinguishes a pod from its replacement of the same name.
        key: identifies the container and its run; the same in all observations of one end.
        container: the container's name; "" if the pod ended as a whole (evicted before it ran, node lost).
        run: number of this run of the replica's container, from 0; counts runs in earlier pods of this name, too.
        exit_code: None if unknown.
        signal: the signal that the runtime reports; most runtimes only report 128 + signal as the exit code.
        message: the termination message. With FallbackToLogsOnError it is the end of the log; otherwise it is the part
            of the log that could be read in time.
        disruption: why something outside ended the whole pod, as `Reason: message`; "" if nothing did.
        stopped: the pod was already being deleted when this container ended.
        node: the pod's node; "" if unknown.
    """

    replica: str
    pod_uid: str = ""
    key: str = ""
    container: str = ""
    kind: ContainerKind = ContainerKind.TRAINING
    run: int = 0
    restart_count: int = 0
    exit_code: int | None = None
    signal: int = 0
    reason: str = ""
    message: str = ""
    disruption: str = ""
    stopped: bool = False
    node: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def failed(self) -> bool:
        """Return whether the end is anything but exit code 0."""
        return self.exit_code != 0

    @property
    def has_run(self) -> bool:
        """Return whether the container is known to have started.

        An end that only the operator reports has no start time. Its container has started if its exit code is the
        program's own, not one of `_WITHOUT_START`.
        """
        is_reported = not self.pod_uid and self.exit_code not in _WITHOUT_START
        return self.started_at is not None or is_reported

    @property
    def ended_at(self) -> datetime:
        """Return the instant of the end, for sorting; EARLIEST if unknown."""
        return self.finished_at or EARLIEST


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Reason why a pod does not run now.

    Attributes:
        container: the container that blocks the pod; "" if the whole pod waits.
        reason: the reason that the kubelet, scheduler or operator gives.
    """

    container: str = ""
    kind: WaitKind
    reason: str
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Waiting(Wait):
    """A pod that does not run, with its reason and its clock.

    Attributes:
        replica: the pod's name; "" if the server refused to create a pod without naming it.
        since: when this process, by its own clock, first observed this kind of wait of this pod; later by the time in
            which it was not known whether the pod still waited.
        in_vain: why waiting cannot help, reported instead of the message; "" if it may help.
    """

    replica: str
    pod_uid: str = ""
    since: datetime
    in_vain: str = ""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Deletion of a running pod by something other than the operator: a person, or an eviction from its node.

    Attributes:
        replica: the pod's name.
        requested_at: when its deletion was requested; by our clock if the pod was gone at once.
        disruption: the reason on the pod, `Reason: message`, such as an eviction or preemption; "" for none.
        node: the pod's node; "" if unknown.
    """

    replica: str
    pod_uid: str
    requested_at: datetime
    disruption: str = ""
    node: str = ""


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """Restarts of one replica's container.

    Attributes:
        count: restarts inside the current pod, as the kubelet counts them.
        earlier: runs in earlier failed pods of this name.
        settled: restarts up to the last long run; only the restarts after it form a crash loop.
    """

    replica: str
    container: str
    pod_uid: str
    count: int = 0
    earlier: int = 0
    settled: int = 0

    @property
    def total(self) -> int:
        """Return the number of all restarts, including those by new pods."""
        return self.earlier + self.count

    @property
    def in_a_row(self) -> int:
        """Return the number of restarts since the last long run."""
        return self.total - self.settled


@dataclass(frozen=True, kw_only=True)
class PodHistory:
    """Recorded history of a job's pods; starts empty.

    Attributes:
        terminations: every observed container end, in the order of observation.
        waiting: current waits; at most one per pod.
        running: replicas whose training container runs now.
        finished: replicas whose training container has exited and will not restart.
        placed: replicas that have a node now.
        nodes: (replica, node, RFC 3339 start of the training container or "") of replicas that have or had a node.
        leaving: uids of the pods that are being deleted now.
        held_up: waits of the other pods at the time when an init container failed, which may have waited for them.
        removals: deletions of running pods that the operator has not reported as its own.
        operator_deleted: replicas whose pods the operator reports to have deleted.
        hears_operator: the operator's events are visible, so that a missing one is meaningful.
        restart_counts: restarts of each replica's containers.
        restarts_reported: number of restarts that the job's own status reports; 0 if it reports none.
        notices: settings that the back-end does not apply, in its words.
        queue: why the job's queue keeps it waiting, in the queue's words; "" if unknown.
        revisions: revisions of the code that replicas have fetched, each once.
        returned: what rank 0's function returned, as JSON; "" for nothing.
        queued_since: first observation of the current wait for nodes, see `Waiting.since`; None while every pod has a
            node.
        counted_at: in a stored history, the instant up to which the waits were counted; None in older ones.
        first_running_at: when the first training container started.
        all_running_at: when the last training container started, once all of them run.
    """

    terminations: tuple[Termination, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    running: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()
    nodes: tuple[tuple[str, str, str], ...] = ()
    leaving: tuple[str, ...] = ()
    held_up: tuple[Waiting, ...] = ()
    removals: tuple[Removal, ...] = ()
    operator_deleted: tuple[str, ...] = ()
    hears_operator: bool = False
    restart_counts: tuple[Restarts, ...] = ()
    restarts_reported: int = 0
    notices: tuple[str, ...] = ()
    queue: str = ""
    revisions: tuple[str, ...] = ()
    returned: str = ""
    queued_since: datetime | None = None
    counted_at: datetime | None = None
    first_running_at: datetime | None = None
    all_running_at: datetime | None = None

    @property
    def restarts(self) -> int:
        """Return the number of container restarts of all replicas, as observed or, if higher, as reported."""
        return max(sum(entry.total for entry in self.restart_counts), self.restarts_reported)

    @contained(lambda _why, record, now: replace(record, counted_at=None).resumed(now))
    def resumed(self, now: datetime) -> Self:
        """Return the stored history for a new follower, whose waits have lasted as long as they were counted before."""
        if self.counted_at is None:
            return self.begun_anew(now)
        return replace(self.postponed(now - self.counted_at), counted_at=None)

    def postponed(self, by: timedelta) -> Self:
        """Return the history with all waits begun later by this time, which does not count."""
        return self._with_waits(lambda since: since + by)

    def begun_anew(self, now: datetime) -> Self:
        """Return the history with all waits begun now."""
        return self._with_waits(lambda _: now)

    def has_enough(self, least: int | None) -> bool:
        """Return whether as many replicas run as an elastic job needs; False for another job, which has no `least`."""
        return least is not None and len(self.running) >= least

    def _with_waits(self, begun: Callable[[datetime], datetime]) -> Self:
        waiting = tuple(replace(wait, since=begun(wait.since)) for wait in self.waiting)
        queued_since = begun(self.queued_since) if self.queued_since is not None else None
        return replace(self, waiting=waiting, queued_since=queued_since)

    def node_of(self, replica: str) -> str:
        """Return the node of the replica's last pod that ended or was deleted; "" if unknown."""
        ends: list[Termination | Removal] = [*self.removals, *reversed(self.terminations)]
        return next((end.node for end in ends if end.replica == replica and end.node), "")

    def had_pod(self, replica: str) -> bool:
        """Return whether a pod of this replica was ever observed; True once all replicas have run."""
        observed: list[Termination | Restarts | Removal] = [*self.terminations, *self.restart_counts, *self.removals]
        return self.all_running_at is not None or any(entry.replica == replica for entry in observed)

    def is_blank(self, ended_at: datetime | None) -> bool:
        """Return whether no pod of a job that ended at `ended_at` was ever observed, because nothing followed the job.

        A wait without pods counts as an observation only if it was observed before the job's end.
        """
        was_queued = self.queued_since is not None and ended_at is not None and self.queued_since < ended_at
        return not (self.terminations or self.restart_counts or self.removals or self.waiting or was_queued)

    def has_run(self, replica: str) -> bool:
        """Return whether the training container of a replica is known to have run."""
        return replica in self.running or any(end.has_run for end in self._ends_of(replica))

    def last_end(self, replica: str) -> Termination | None:
        """Return the newest observed end of the replica's training container; None if there is none."""
        return next(reversed(self._ends_of(replica)), None)

    def _ends_of(self, replica: str) -> list[Termination]:
        return [end for end in self.terminations if end.replica == replica and end.kind is ContainerKind.TRAINING]

    def lost_seconds(self) -> dict[str, float]:
        """Return, by replica, the total seconds of the training container's runs that were followed by another run."""
        lost: dict[str, float] = {}
        for end in self.terminations:
            if end.kind is ContainerKind.TRAINING and end.started_at and self.is_superseded(end):
                seconds = (end.ended_at - end.started_at).total_seconds()
                lost[end.replica] = lost.get(end.replica, 0.0) + max(seconds, 0.0)
        return lost

    def new_terminations_since(self, earlier: PodHistory) -> tuple[Termination, ...]:
        """Return the ends that an earlier history does not have; a history with new ends is worth storing."""
        known = {termination.key for termination in earlier.terminations}
        return tuple(termination for termination in self.terminations if termination.key not in known)

    def silent_ends(self) -> tuple[Termination, ...]:
        """Return the failed training runs without a message whose log the node may still have, first end first.

        A node keeps the log of the newest run in a pod and of the previous one.
        """
        failed = (end for end in self.terminations if end.kind is ContainerKind.TRAINING and end.failed)
        silent = (end for end in failed if end.started_at and end.finished_at and not end.stopped and not end.message)
        return tuple(sorted((end for end in silent if self._is_kept(end)), key=lambda end: end.ended_at))

    def _is_kept(self, end: Termination) -> bool:
        entry = self.restarts_of(end.replica, end.container)
        return entry is not None and entry.pod_uid == end.pod_uid and entry.count - end.restart_count <= 1

    def with_messages(self, messages: Mapping[str, str]) -> Self:
        """Return the history with these messages, by the key of the end, added to ends without a message."""
        ends = (replace(end, message=end.message or messages.get(end.key, "")) for end in self.terminations)
        return replace(self, terminations=tuple(ends))

    def restarts_of(self, replica: str, container: str) -> Restarts | None:
        """Return the restarts of one container; None if the container was never observed."""
        entries = (entry for entry in self.restart_counts if (entry.replica, entry.container) == (replica, container))
        return next(entries, None)

    def is_superseded(self, termination: Termination) -> bool:
        """Return whether a later run of the container (a later pod, if the pod ended as a whole) was observed."""
        if not termination.container:
            entries = [entry for entry in self.restart_counts if entry.replica == termination.replica]
            return any(entry.pod_uid != termination.pod_uid for entry in entries)
        entry = self.restarts_of(termination.replica, termination.container)
        return entry is not None and entry.total > termination.run
