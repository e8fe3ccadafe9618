"""Cached state of one followed job: its object, its pods, and the events that explain its waiting.

All followers of a job on a loop share it: the watcher and the log readers. It holds the current state; each follower
gets a deleted pod once, in its last state. The informer updates it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections import deque
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.history.peak_usage import PeakUsage, of_pods
from ptjob_provider.core.kinds.queue import QUEUE_LABEL
from ptjob_provider.core.kubernetes.informer.scope import by_name, by_uid, told_at
from ptjob_provider.core.shared import Notifier
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from ptjob_provider.core.identity import JobRef, Manifest

_REMEMBERED = 256
"""Deleted pods per job that are kept for a slow follower."""

_ASKED_ABOUT = 4
"""Waiting pods without a reason whose events are read: the others wait for the same reason."""

ENDED = {"Succeeded", "Failed"}
"""Final phases of a pod."""

_VAGUE = {"ContainerCreating", "PodInitializing", ""}


class JobCache:
    """Cached state of one job. A waiting job is kept packed, in a twentieth of the memory.

    Args:
        ref: the job.
        asks: reads the job's pods from the server into this cache. None: the job does not exist.
    """

    __slots__ = (
        "_asks",
        "_created_at",
        "_events",
        "_gone",
        "_has_started",
        "_is_in_queue",
        "_number_of_gone",
        "_packed",
        "_pods",
        "_rank0",
        "_replica_of",
        "_replicas",
        "_used",
        "box",
        "is_known",
        "phase",
        "ref",
        "users",
    )

    def __init__(self, ref: JobRef, asks: Callable[[JobCache], Awaitable[None]] | None = None) -> None:
        self.ref = ref
        self._asks = asks
        self.box = Notifier()
        self.is_known = False
        self.users = 0
        self.phase: JobPhase | None = None
        self._packed: bytes | None = None
        self._created_at = ""
        self._has_started = False
        self._is_in_queue = False
        self._replica_of = kinds.named(ref.kind).replica_of
        self._replicas = 0
        self._rank0 = ""
        self._pods: dict[str, Manifest] = {}
        self._gone: deque[tuple[int, Manifest]] | None = None
        self._number_of_gone = 0
        self._events: Mapping[str, Manifest] = {}
        self._used: dict[str, tuple[str, PeakUsage]] | None = None

    # --- written by the informer

    def show_job(self, job: Manifest | None) -> None:
        """Set the job's current state; None if it is gone."""
        if job is None:
            self._packed = None
        else:
            status = kinds.read_status(job)
            self.phase, self._has_started = status.phase, status.started_at is not None
            self._created_at = job["metadata"].get("creationTimestamp") or ""
            self._is_in_queue = QUEUE_LABEL in (job["metadata"].get("labels") or {})
            self._replica_of = kinds.replica_of(job)
            replicas = kinds.replicas(job)
            self._replicas, self._rank0 = len(replicas), replicas[0].name if replicas else ""
            self._packed = packed(job)
        self.is_known = True
        self.box.ring()

    def show_pod(self, pod: Manifest, *, is_news: bool = False) -> None:
        """Set a pod's current state; ignored if the pod is known to be deleted or a later state is known.

        Args:
            pod: the object.
            is_news: it comes from the watch: a pod missing from a lagging server's list has reappeared.
        """
        uid = pod["metadata"]["uid"]
        lost = [gone for _, gone in self._gone or () if gone["metadata"]["uid"] == uid]
        last = lost[-1] if lost else self._pods.get(uid)
        if _version(pod) < _version(last) or (lost and not is_news):
            return
        if self._gone is not None and lost:
            others = [each for each in self._gone if each[1]["metadata"]["uid"] != uid]
            self._gone = deque(others, maxlen=_REMEMBERED)
        self._pods[uid] = pod
        if self.is_known:
            self.box.ring()

    def lose_pod(self, pod: Manifest) -> None:
        """Set the last state of a deleted pod."""
        self._pods.pop(pod["metadata"]["uid"], None)
        self._gone = self._gone if self._gone is not None else deque(maxlen=_REMEMBERED)
        self._number_of_gone += 1
        self._gone.append((self._number_of_gone, pod))
        self.box.ring()

    def forget_versions(self) -> None:
        """Accept the pods' next states regardless of version: the server was restored."""
        self._gone = None
        for pod in self._pods.values():
            pod["metadata"].pop("resourceVersion", None)

    def show_events(self, events: Mapping[str, Manifest]) -> None:
        """Set the events about the job and its pods: uid → event.

        Events found by name may belong to an earlier job: those older than this job are dropped.
        """
        found = {uid: event for uid, event in events.items() if told_at(event) >= self._created_at}
        if found != self._events:
            self._events = found
            self.box.ring()

    def show_measured(self, pod: Manifest, measured: Mapping[str, Any]) -> None:
        """Add a usage sample of one of its pods; wakes no follower."""
        self._used = {} if self._used is None else self._used
        replica = self._replica_of(pod)
        uid = pod["metadata"]["uid"]
        _, before = self._used.get(uid, (replica, PeakUsage()))
        self._used[uid] = replica, before.with_sample(measured)

    # --- read by followers

    async def observations(self) -> AsyncGenerator[Observation, None]:
        """Yield the state once it is complete, and again after each change; see `Backend.watch`.

        Raises:
            PTJobError: the server refuses the watch; log readers go on with the cached state.
        """
        seen, told = -1, 0
        while True:
            await self.box.until(lambda seen=seen: self.is_known and self.box.version > seen)  # type: ignore[misc]
            seen = self.box.version
            gone = [pod for number, pod in self._gone or () if number > told]
            told = self._number_of_gone
            is_gone = self._packed is None  # the job may be deleted while the consumer handles the observation
            yield self._observation(gone)
            if is_gone:
                return
            if gone:
                yield self._observation([])

    async def pod(self, name: str) -> Manifest | None:
        """Return the current newest pod of the replica; None if there is none."""
        self._check()
        found = [pod for pod in self._pods.values() if self._replica_of(pod) == name]
        return max(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def last_state(self, uid: str) -> Manifest | None:
        """Return the last known state of a pod, deleted or not; None if it is not cached."""
        gone = (pod for _, pod in reversed(self._gone or ()) if pod["metadata"]["uid"] == uid)
        return self._pods.get(uid) or next(gone, None)

    async def ask_for_pods(self) -> None:
        """Read the pods from the server: their events may lag behind the job's.

        Raises:
            ClusterError: the server refuses. An unresponsive server is retried.
        """
        if self._asks is not None:
            await self._asks(self)

    async def job(self) -> Manifest | None:
        """Return the job's current state; None if it is gone."""
        self._check()
        return self.read_job()

    async def change(self, timeout: float) -> None:  # noqa: ASYNC109 - not a limit: the time of the next check
        """Wait for the next change, or until the timeout."""
        before = self.box.version
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):  # `wait_for` may swallow a cancellation before Python 3.12
                await self.box.until(lambda: self.box.version > before, though_refused=True)

    def used(self) -> dict[str, PeakUsage]:
        """Return the usage of its replicas measured since it is followed, by name."""
        return of_pods((self._used or {}).values())

    # --- read by the informer

    def read_job(self) -> Manifest | None:
        """Return the job's last published state; None if it is gone."""
        return unpacked(self._packed) if self._packed else None

    @property
    def pods(self) -> Mapping[str, Manifest]:
        """Return the existing pods: uid → pod."""
        return self._pods

    @property
    def events(self) -> Sequence[Manifest]:
        """Return the last events about the job, its pods and its place in a queue."""
        return list(self._events.values())

    @property
    def running(self) -> list[Manifest]:
        """Return the running pods, if the job runs."""
        if self.phase is not JobPhase.RUNNING:
            return []
        return [pod for pod in self._pods.values() if pod["status"].get("phase") == "Running"]

    @property
    def has_surely_stopped(self) -> bool:
        """Return whether no pod runs or will run, even if pod events are late.

        The end of a pod is final, so as many ended pods as the job has replicas are enough; a job that ended without
        having started, such as a suspended one, never had any.
        """
        ended = {self._replica_of(pod) for pod in self._pods.values() if pod["status"].get("phase") in ENDED}
        never_started = self._is_over and not self._has_started and not self._pods and not self._gone
        return never_started or (self._is_over and len(ended) == len(self._pods) == self._replicas)

    @property
    def _is_over(self) -> bool:
        return self.phase is not None and self.phase.is_terminal

    @property
    def asks_queue(self) -> bool:
        """Return whether a queue holds the job back and has the reason."""
        return self.phase is JobPhase.SUSPENDED and self._is_in_queue and self._packed is not None

    def asks_about(self) -> list[str]:
        """Return the field selectors of the events that are needed now.

        They select events about pods that do not start; about the job, and the creator of its pods, while pods are
        created or deleted; and about a failed job: the operator reports there the pods that it could not create, those
        that it deleted itself, and the ends of deleted pods. For pods that failed waiting for a deleted rank 0, also
        rank 0's events.
        """
        if self._packed is None or self.phase in {JobPhase.SUSPENDED, JobPhase.SUCCEEDED, None}:
            return []
        is_over = self.phase is JobPhase.FAILED
        vague = [] if is_over else [uid for uid, pod in self._pods.items() if _is_vague(pod)]
        leaving = any("deletionTimestamp" in pod["metadata"] for pod in self._pods.values())
        lacks_pods = len(self._pods) < self._replicas
        subjects = [by_uid(self.ref.uid)] if is_over or vague or leaving or lacks_pods else []
        controllers = kinds.named(self.ref.kind).controllers(self.ref.name) if lacks_pods and not is_over else ()
        subjects += [by_name(kind, name) for kind, name in controllers]
        if is_over and self._rank0_was_waited_for:
            subjects.append(by_name("Pod", self._rank0))
        return [*subjects, *(by_uid(uid) for uid in vague[:_ASKED_ABOUT])]

    @property
    def _rank0_was_waited_for(self) -> bool:
        """Return whether an init container has failed that may have waited for rank 0's pod, which is deleted."""
        inits = (each for pod in self._pods.values() for each in pod["status"].get("initContainerStatuses") or ())
        has_failed = any(((each.get("state") or {}).get("terminated") or {}).get("exitCode") for each in inits)
        is_named = kinds.named(self.ref.kind).HAS_FIXED_POD_NAMES
        return has_failed and is_named and self._rank0 not in map(self._replica_of, self._pods.values())

    def _check(self) -> None:
        if self.box.error is not None:
            raise self.box.error

    def _observation(self, gone: list[Manifest]) -> Observation:
        pods = [*gone, *self._pods.values()]
        return Observation(job=self.read_job(), pods=pods, events=self.events)


def _version(pod: Manifest | None) -> int:
    return int(pod["metadata"].get("resourceVersion") or 0) if pod else 0


def packed(found: Manifest) -> bytes:
    """Return the object in a compact form that is fast to create."""
    return zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 1)


def unpacked(data: bytes) -> Manifest:
    """Return the unpacked object."""
    found: Manifest = json.loads(zlib.decompress(data))
    return found


def _is_vague(pod: Manifest) -> bool:
    """Return whether the pod is scheduled, does not run, and gives no reason."""
    status = pod.get("status") or {}
    if status.get("phase") != "Pending" or not pod["spec"].get("nodeName"):
        return False
    states = [
        each.get("state") or {}
        for key in ("initContainerStatuses", "containerStatuses")
        for each in status.get(key) or ()
    ]
    reasons = {(state.get("waiting") or {}).get("reason", "") for state in states if "waiting" in state}
    return reasons <= _VAGUE and not any("running" in state for state in states)
