"""Value types of the pod history: ends, waits, running replicas. Reads no pods and no clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKLOAD = "Workload"
"""Kind of the involved object in a queue's events about a job."""

EARLIEST = datetime.min.replace(tzinfo=UTC)
"""Sorts before every real instant."""


_WITHOUT_START = {None, 128, 137}
"""Exit codes of containers that may never have started: unknown; the runtime could not start it; the kubelet did not
find it when its pod was deleted."""


class ContainerKind(StrEnum):
    """Purpose of a container."""

    TRAINING = "training"
    INIT = "init"
    SIDECAR = "sidecar"


class WaitKind(StrEnum):
    """Kind of a wait; each has its own clock and its own limit, see `diagnosis.ending`."""

    QUEUED = "queued"
    """No node yet: unschedulable, gated, or its claim is not bound."""
    REFUSED = "refused"
    """The pod could not be created: the namespace's quota is used up."""
    FORBIDDEN = "forbidden"
    """The pod may not be created: PodSecurity, a webhook, a missing service account."""
    BROKEN = "broken"
    """It can never start: the image's name is invalid, the program is missing."""
    STUCK = "stuck"
    """The kubelet keeps retrying: image pull, missing secret, mount errors."""
    STARTING = "starting"
    """Scheduled, with no known problem."""
    PULLING = "pulling"
    """The image is being pulled."""
    INIT = "init"
    """An init container runs."""
    CRASH_LOOP = "crash-loop"
    """The container failed and will be restarted."""
    SIDECAR = "sidecar"
    """The training container exited with 0, another container of the pod still runs."""


@dataclass(frozen=True, kw_only=True)
class Termination:
    """End of one container, or of a pod that ended without container statuses.

    Attributes:
        replica: the pod's name.
        pod_uid: distinguishes a pod from its replacement of the same name.
        key: identifies the run and container; repeated observations of one end have the same key.
        container: its name; "" when the pod ended as a whole (evicted before it ran, node lost).
        run: counts the starts of this replica's container from 0, recreated pods included.
        exit_code: None if unknown.
        signal: reported by the runtime; most runtimes only report 128 + signal as the exit code.
        message: the termination message: the end of the log where the pod has FallbackToLogsOnError, else what could be
            read of it in time.
        disruption: why the pod as a whole was ended from outside, `Reason: message`; "" if it was not.
        stopped: the pod was already being deleted when this container ended.
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
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def failed(self) -> bool:
        """Return whether it ended in any way but exit code 0."""
        return self.exit_code != 0

    @property
    def has_run(self) -> bool:
        """Return whether the container is known to have started.

        An end that the operator reports has no start: its exit code is the program's own, unless it is one that is
        also written for a container that never started.
        """
        is_reported = not self.pod_uid and self.exit_code not in _WITHOUT_START
        return self.started_at is not None or is_reported

    @property
    def ended_at(self) -> datetime:
        """Return the instant to sort by."""
        return self.finished_at or EARLIEST


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A pod that does not run, with its reason.

    Attributes:
        replica: the pod's name; "" where the server refused to create a pod and did not name it.
        container: the container that blocks it; "" for the pod as a whole.
        reason: of the kubelet, scheduler or operator.
        since: first observation of this kind of wait of this pod, by our clock, never the cluster's.
        in_vain: why waiting cannot help, reported instead of the message; "" where it may.
    """

    replica: str
    pod_uid: str = ""
    container: str = ""
    kind: WaitKind
    reason: str
    message: str = ""
    since: datetime
    in_vain: str = ""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """A running pod deleted by something other than the operator: a person, or an eviction from its node.

    Attributes:
        replica: the pod's name.
        asked_at: when its deletion was requested; our clock if the pod was gone at once.
        disruption: the pod's own reason, `Reason: message`: evicted, preempted; else "".
    """

    replica: str
    pod_uid: str
    asked_at: datetime
    disruption: str = ""


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """Restarts of one replica's container.

    Attributes:
        count: restarts inside the current pod, as the kubelet counts.
        earlier: runs in earlier failed pods of this name.
        settled: restarts up to the last run that lasted; only those after it form a crash loop.
    """

    replica: str
    container: str
    pod_uid: str
    count: int = 0
    earlier: int = 0
    settled: int = 0

    @property
    def total(self) -> int:
        """Return all restarts, recreated pods included."""
        return self.earlier + self.count

    @property
    def in_a_row(self) -> int:
        """Return the restarts since the last run that lasted."""
        return self.total - self.settled


@dataclass(frozen=True, kw_only=True)
class PodHistory:
    """Recorded history of a job's pods; starts empty.

    Attributes:
        terminations: every observed container end, in the order of observation.
        dropped: number of terminations left out because the history is bounded.
        waiting: current waits; at most one per pod.
        running: replicas whose training container runs now.
        finished: replicas whose training container has exited and will not restart.
        placed: replicas that have a node now.
        leaving: uids of the pods that are being deleted now.
        held_up: waits of other pods when an init container failed that may have waited for them.
        removals: deletions of running pods that the operator has not reported as its own.
        operator_deleted: replicas whose pods the operator reports to have deleted.
        hears_operator: the operator's events are visible, so that a missing one is meaningful.
        restart_counts: per replica and container.
        restarts_told: restarts reported by the job's own status; 0 where it does not count.
        notices: settings that the back-end does not apply, in its words.
        queue: why the job's queue keeps it waiting, in the queue's words; "" if unknown.
        revisions: of the code that replicas have fetched, each once: `replica revision`, the first replica by name.
        returned: what rank 0's function returned, as JSON; "" for nothing.
        queued_since: first observation of the current wait for nodes; None while every pod has one.
        first_running_at: when the first training container started.
        all_running_at: when the last of the replicas started, once all of them run.
    """

    terminations: tuple[Termination, ...] = ()
    dropped: int = 0
    waiting: tuple[Waiting, ...] = ()
    running: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    held_up: tuple[Waiting, ...] = ()
    removals: tuple[Removal, ...] = ()
    operator_deleted: tuple[str, ...] = ()
    hears_operator: bool = False
    restart_counts: tuple[Restarts, ...] = ()
    restarts_told: int = 0
    notices: tuple[str, ...] = ()
    queue: str = ""
    revisions: tuple[str, ...] = ()
    returned: str = ""
    queued_since: datetime | None = None
    first_running_at: datetime | None = None
    all_running_at: datetime | None = None

    @property
    def restarts(self) -> int:
        """Return the observed or reported container restarts of all replicas."""
        return max(sum(entry.total for entry in self.restart_counts), self.restarts_told)

    def revision_of(self, replica: str) -> str:
        """Return the revision that a replica trained, by default the common one; "" if unknown.

        Where replicas differ, the named one's, else that of the first by name.
        """
        entries = [entry.partition(" ") for entry in self.revisions]
        own = (revision for name, _, revision in entries if name == replica)
        return next(own, entries[0][2] if entries else "")

    def had_pod(self, replica: str) -> bool:
        """Return whether a replica's pod, or all replicas' pods, were ever observed."""
        observed: list[Termination | Restarts | Removal] = [*self.terminations, *self.restart_counts, *self.removals]
        return self.all_running_at is not None or any(entry.replica == replica for entry in observed)

    def is_blank(self, ended_at: datetime | None) -> bool:
        """Return whether nothing of the pods was observed of a job that ended at `ended_at`: nobody followed it.

        An observed wait without pods, before the end, is an observation; the first one after the end is none.
        """
        was_queued = self.queued_since is not None and ended_at is not None and self.queued_since < ended_at
        return not (self.terminations or self.restart_counts or self.removals or self.waiting or was_queued)

    def has_run(self, replica: str) -> bool:
        """Return whether a replica's training container is known to have run."""
        ends = (one for one in self.terminations if one.replica == replica and one.kind is ContainerKind.TRAINING)
        return replica in self.running or any(one.has_run for one in ends)

    def lost_seconds(self) -> dict[str, float]:
        """Return per replica the seconds its training container ran before it had to be restarted."""
        lost: dict[str, float] = {}
        for one in self.terminations:
            if one.kind is ContainerKind.TRAINING and one.started_at and self.is_superseded(one):
                seconds = (one.ended_at - one.started_at).total_seconds()
                lost[one.replica] = lost.get(one.replica, 0.0) + max(seconds, 0.0)
        return lost

    def new_terminations_since(self, earlier: PodHistory) -> tuple[Termination, ...]:
        """Return the ends after the earlier history; a history with new ends is worth storing."""
        known = {termination.key for termination in earlier.terminations}
        return tuple(termination for termination in self.terminations if termination.key not in known)

    def silent_ends(self) -> tuple[Termination, ...]:
        """Return the failed training runs without a message whose log the node may still have, first end first.

        A node keeps the log of the newest run in a pod and of the previous one.
        """
        failed = (one for one in self.terminations if one.kind is ContainerKind.TRAINING and one.failed)
        silent = (one for one in failed if one.started_at and one.finished_at and not one.stopped and not one.message)
        return tuple(sorted((one for one in silent if self._is_kept(one)), key=lambda one: one.ended_at))

    def _is_kept(self, end: Termination) -> bool:
        entry = self.restarts_of(end.replica, end.container)
        return entry is not None and entry.pod_uid == end.pod_uid and entry.count - end.restart_count <= 1

    def with_messages(self, messages: Mapping[str, str]) -> Self:
        """Return the history with these messages added, by key, to ends without one."""
        ends = (replace(one, message=one.message or messages.get(one.key, "")) for one in self.terminations)
        return replace(self, terminations=tuple(ends))

    def restarts_of(self, replica: str, container: str) -> Restarts | None:
        """Return the counts of one container; None if it was never observed."""
        entries = (entry for entry in self.restart_counts if (entry.replica, entry.container) == (replica, container))
        return next(entries, None)

    def is_superseded(self, termination: Termination) -> bool:
        """Return whether a later run of the container was observed; for a pod that ended as a whole, a later pod."""
        if not termination.container:
            entries = [entry for entry in self.restart_counts if entry.replica == termination.replica]
            return any(entry.pod_uid != termination.pod_uid for entry in entries)
        entry = self.restarts_of(termination.replica, termination.container)
        return entry is not None and entry.total > termination.run
