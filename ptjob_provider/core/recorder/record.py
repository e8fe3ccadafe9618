"""The values of the flight recorder: what ended, what waits, what runs. Nothing here reads a pod or a clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKLOAD = "Workload"
"""The kind of object in whose name a queue tells of a job."""

EARLIEST = datetime.min.replace(tzinfo=UTC)
"""Sorts before every instant that can be seen."""


class ContainerKind(StrEnum):
    """What a container is for."""

    TRAINING = "training"
    INIT = "init"
    SIDECAR = "sidecar"


class WaitKind(StrEnum):
    """What kind of wait it is; each has its own clock and its own end, see `diagnosis.ending`."""

    QUEUED = "queued"
    """No node yet: unschedulable, gated, or its claim is not bound."""
    REFUSED = "refused"
    """The pod could not be created: the namespace's quota is used up."""
    FORBIDDEN = "forbidden"
    """The pod may not be created: PodSecurity, a webhook, a service account that is not there."""
    BROKEN = "broken"
    """It can never start: the image's name is invalid, the program is missing."""
    STUCK = "stuck"
    """The kubelet tries again and again: image pull, missing secret, mount errors."""
    STARTING = "starting"
    """Placed, and nothing bad is known."""
    PULLING = "pulling"
    """The image is being pulled right now."""
    INIT = "init"
    """An init container runs."""
    CRASH_LOOP = "crash-loop"
    """The container failed and is to be started again."""
    SIDECAR = "sidecar"
    """The training container exited with 0, another container of the pod still runs."""


@dataclass(frozen=True, kw_only=True)
class Termination:
    """One container's end, or one pod's that ended without telling of its containers.

    Attributes:
        replica: the pod's name.
        pod_uid: tells a pod from the one that replaced it under its name.
        key: which run of which container; the same end seen twice has the same key.
        container: its name; "" when the pod ended as a whole (evicted before it ran, node lost).
        run: counts the starts of this replica's container from 0, pods that were made anew included.
        exit_code: None when nobody knows it.
        signal: what the runtime said; most runtimes only say 128 + signal as the exit code.
        message: the termination message: the end of the log where the pod says FallbackToLogsOnError, else what could
            be read of it in time.
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
        """Whether it ended in any way but exit code 0."""
        return self.exit_code != 0

    @property
    def ended_at(self) -> datetime:
        """The instant to sort by."""
        return self.finished_at or EARLIEST


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """One pod that does not run, and what it says why.

    Attributes:
        replica: the pod's name; "" where the server refused to make a pod and did not name it.
        container: the container that holds it up, "" for the pod as a whole.
        reason: the kubelet's, scheduler's or operator's word.
        since: when we first saw this kind of wait of this pod: our clock, never the cluster's.
        in_vain: why no waiting helps, as a sentence's end; "" where it may.
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
    """A pod that ran and was deleted, and not by the operator: by a person, or by whoever frees its node.

    Attributes:
        replica: the pod's name.
        asked_at: when its deletion was asked for; our clock where the pod was gone at once.
        disruption: why, `Reason: message`, where the pod says it: evicted, preempted; else "".
    """

    replica: str
    pod_uid: str
    asked_at: datetime
    disruption: str = ""


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """How often one replica's container was started again.

    Attributes:
        count: restarts inside the present pod, as the kubelet counts.
        earlier: runs in failed pods of this name before the present one.
        settled: restarts before this one followed a run that lasted; only those after it are a crash loop.
    """

    replica: str
    container: str
    pod_uid: str
    count: int = 0
    earlier: int = 0
    settled: int = 0

    @property
    def total(self) -> int:
        """How many times it was started again, pods made anew included."""
        return self.earlier + self.count

    @property
    def in_a_row(self) -> int:
        """How many restarts followed each other without a run that lasted."""
        return self.total - self.settled


@dataclass(frozen=True, kw_only=True)
class Record:
    """What has been seen of a job so far. An empty one is where every job begins.

    Attributes:
        terminations: every container end that was seen, in the order of seeing.
        dropped: how many terminations were left out because the record is bounded.
        waiting: what waits now; at most one per pod.
        running: replicas whose training container runs now.
        finished: replicas of which it has exited, and is not started again, now.
        placed: replicas that have a node now.
        leaving: uids of the pods that are being deleted now.
        held_up: what other pods waited for when an init container failed that may have waited for them.
        removals: deletions of running pods that the operator has not told of as its own.
        hears_operator: the operator's events reach us, so that its silence tells something.
        restart_counts: per replica and container.
        restarts_told: how many there were, in the words of the job's own status; 0 where it does not count.
        notices: what the back-end does not apply, in its words.
        queue: why the job's queue keeps it waiting, in the queue's words; "" if none has said.
        revisions: of the code that replicas have fetched, each once: `replica revision`, the first replica by name.
        queued_since: when we first saw the present wait for a place; None while every pod has one.
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
    hears_operator: bool = False
    restart_counts: tuple[Restarts, ...] = ()
    restarts_told: int = 0
    notices: tuple[str, ...] = ()
    queue: str = ""
    revisions: tuple[str, ...] = ()
    queued_since: datetime | None = None
    first_running_at: datetime | None = None
    all_running_at: datetime | None = None

    @property
    def unschedulable(self) -> tuple[str, ...]:
        """Why pods have no node, each text once."""
        return tuple(dict.fromkeys(wait.message for wait in self.waiting if wait.kind is WaitKind.QUEUED))

    @property
    def restarts(self) -> int:
        """How often containers were started again, all replicas together, as far as that was seen or told."""
        return max(sum(entry.total for entry in self.restart_counts), self.restarts_told)

    def revision_of(self, replica: str) -> str:
        """Return the revision that a replica trained, as all do that have told none of their own; "" if none is known.

        Where replicas differ it is that of the named one, else of the first by name.
        """
        told = [entry.partition(" ") for entry in self.revisions]
        own = (revision for name, _, revision in told if name == replica)
        return next(own, told[0][2] if told else "")

    def had_pod(self, replica: str) -> bool:
        """Tell whether a replica's pod was seen, now or before, or all of them."""
        seen: list[Termination | Restarts | Removal] = [*self.terminations, *self.restart_counts, *self.removals]
        return self.all_running_at is not None or any(entry.replica == replica for entry in seen)

    def has_run(self, replica: str) -> bool:
        """Tell whether a replica's training container is known to have run."""
        ends = (one for one in self.terminations if one.replica == replica and one.kind is ContainerKind.TRAINING)
        return replica in self.running or any(one.started_at is not None for one in ends)

    def lost_seconds(self) -> dict[str, float]:
        """Return per replica how long its training container ran before it had to be started again."""
        lost: dict[str, float] = {}
        for one in self.terminations:
            if one.kind is ContainerKind.TRAINING and one.started_at and self.is_superseded(one):
                seconds = (one.ended_at - one.started_at).total_seconds()
                lost[one.replica] = lost.get(one.replica, 0.0) + max(seconds, 0.0)
        return lost

    def new_terminations_since(self, earlier: Record) -> tuple[Termination, ...]:
        """Return what ended after the earlier record was made; a record is worth storing when there is something."""
        known = {termination.key for termination in earlier.terminations}
        return tuple(termination for termination in self.terminations if termination.key not in known)

    def silent_ends(self) -> tuple[Termination, ...]:
        """Return the failed runs of training that left no message, of which their node may still have the log.

        It has that of the newest run in a pod, and of the one before it. The first that ended comes first.
        """
        failed = (one for one in self.terminations if one.kind is ContainerKind.TRAINING and one.failed)
        silent = (one for one in failed if one.started_at and one.finished_at and not one.stopped and not one.message)
        return tuple(sorted((one for one in silent if self._is_kept(one)), key=lambda one: one.ended_at))

    def _is_kept(self, end: Termination) -> bool:
        entry = self.restarts_of(end.replica, end.container)
        return entry is not None and entry.pod_uid == end.pod_uid and entry.count - end.restart_count <= 1

    def with_messages(self, messages: Mapping[str, str]) -> Self:
        """Return the record with these messages, by the keys of the ends that left none themselves."""
        ends = (replace(one, message=one.message or messages.get(one.key, "")) for one in self.terminations)
        return replace(self, terminations=tuple(ends))

    def restarts_of(self, replica: str, container: str) -> Restarts | None:
        """Return the count for one container, None if it was never seen."""
        found = (entry for entry in self.restart_counts if (entry.replica, entry.container) == (replica, container))
        return next(found, None)

    def is_superseded(self, termination: Termination) -> bool:
        """Whether a later run of the same container was seen; for a pod that ended as a whole, a later pod."""
        if not termination.container:
            entries = [entry for entry in self.restart_counts if entry.replica == termination.replica]
            return any(entry.pod_uid != termination.pod_uid for entry in entries)
        entry = self.restarts_of(termination.replica, termination.container)
        return entry is not None and entry.total > termination.run
