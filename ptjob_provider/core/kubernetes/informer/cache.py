"""Cache the state of one job: its object, its pods, and the events that explain why it waits.

All subscribers of a job on an event loop share the cache: its watcher and its log readers. The informer updates it. It
has the current state only, but each subscriber gets a deleted pod once, in its last state.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.history.peak_usage import PeakUsage, of_pods
from ptjob_provider.core.kinds.queue import QUEUE_LABEL
from ptjob_provider.core.kubernetes.informer.scope import by_name, by_uid, created_at
from ptjob_provider.core.kubernetes.pods import has_ended
from ptjob_provider.core.shared import Notifier
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from ptjob_provider.core.identity import JobRef, Manifest

_REMEMBERED = 256
"""Maximum number of deleted pods per job that are kept for slow subscribers."""

_MAX_WAITING = 4
"""Maximum number of waiting pods whose events are read: further ones mostly wait for the same reason."""

_VAGUE = {"ContainerCreating", "PodInitializing", ""}
"""Reasons of waiting containers that do not explain the waiting."""


@dataclass(slots=True, eq=False, repr=False)
class JobCache:
    """Cached state of one job.

    The job's object is kept compressed, in a twentieth of the memory; without subscribers, so are its pods.

    Attributes:
        ref: the job.
        list_pods: reads the job's pods from the server into this cache. None: the job does not exist.
        notifier: signals changes to the subscribers.
        subscribers: number of subscribers; the informer changes it.
        version: newest resource version of the job that the watch has delivered; -1 for none.
        is_complete: whether the job's state is known.
        phase: phase of the job; None as long as the job is unknown.
    """

    ref: JobRef
    list_pods: Callable[[JobCache], Awaitable[None]] | None = None
    notifier: Notifier = field(default_factory=Notifier)
    subscribers: int = 0
    version: int = -1
    is_complete: bool = False
    phase: JobPhase | None = None
    _is_packed: bool = False
    _packed_job: bytes | None = None
    _packed_end: bytes | None = None
    _created_at: str = ""
    _has_started: bool = False
    _is_in_queue: bool = False
    _replica_of: Callable[[Manifest], str] = field(init=False)
    _replicas: int = 0
    _rank0: str = ""
    _controllers: Sequence[tuple[str, str]] = ()
    _pods: dict[str, Manifest] = field(default_factory=dict)
    _packed_pods: dict[str, bytes] = field(default_factory=dict)
    _deleted: deque[tuple[int, Manifest]] | None = None
    _deletions: int = 0
    _events: Mapping[str, Manifest] = field(default_factory=dict)
    _usage: dict[str, tuple[str, PeakUsage]] | None = None

    def __post_init__(self) -> None:
        self._replica_of = kinds.named(self.ref.kind).replica_of

    # --- written by the informer

    def set_job(self, job: Manifest | None) -> None:
        """Set the job's current state; None if it is gone: subscribers get its end before that."""
        if job is None:
            self._packed_end = (self._packed_job or self._packed_end) if self._is_over else None
            self._packed_job = None
        else:
            status = kinds.read_status(job)
            self.phase, self._has_started = status.phase, status.started_at is not None
            self._created_at = job["metadata"].get("creationTimestamp") or ""
            self._is_in_queue = QUEUE_LABEL in (job["metadata"].get("labels") or {})
            self._replica_of = kinds.replica_of(job)
            replicas = kinds.replicas(job)
            self._replicas = len(replicas) + len(kinds.unranked(job))
            self._rank0 = replicas[0].name if replicas else ""
            self._controllers = kinds.controllers(job)
            self._packed_job = packed(job)
        self.is_complete = True
        self.notifier.notify()

    def set_pod(self, pod: Manifest, *, is_event: bool = False, is_listed: bool = False) -> None:
        """Set a pod's current state. Does nothing if a later state is cached, or if the pod was deleted.

        Args:
            pod: the pod's object.
            is_event: the state comes from the watch: then a pod counted as deleted exists, and was only missing from
                the list of a lagging server.
            is_listed: it counts although a later state is cached: the server was restored from a backup.
        """
        uid = pod["metadata"]["uid"]
        if self._is_packed:
            self._packed_pods[uid] = packed(pod)
            return
        deleted_states = [each for _, each in self._deleted or () if each["metadata"]["uid"] == uid]
        last = deleted_states[-1] if deleted_states else self._pods.get(uid)
        if (_version(pod) < _version(last) and not is_listed) or (deleted_states and not is_event):
            return
        if self._deleted is not None and deleted_states:
            others = [each for each in self._deleted if each[1]["metadata"]["uid"] != uid]
            self._deleted = deque(others, maxlen=_REMEMBERED)
        self._pods[uid] = pod
        if self.is_complete:
            self.notifier.notify()

    def remove_pod(self, uid: str, last: Manifest | None = None) -> None:
        """Remove a deleted pod; subscribers get its last state.

        Args:
            uid: uid of the pod.
            last: its last state; None: the cached one.
        """
        self._packed_pods.pop(uid, None)
        cached = self._pods.pop(uid, None)
        if self._is_packed or (pod := last or cached) is None:
            return
        self._deleted = self._deleted if self._deleted is not None else deque(maxlen=_REMEMBERED)
        self._deletions += 1
        self._deleted.append((self._deletions, pod))
        self.notifier.notify()

    def set_events(self, events: Mapping[str, Manifest]) -> None:
        """Set the events about the job and its pods: uid → event.

        Drops events that are older than the job: selected by name, they are about an earlier job.
        """
        current = {uid: event for uid, event in events.items() if created_at(event) >= self._created_at}
        if current != self._events:
            self._events = current
            self.notifier.notify()

    def add_usage(self, pod: Manifest, measured: Mapping[str, Any]) -> None:
        """Add a usage sample of one of the job's pods; does not notify subscribers."""
        self._usage = {} if self._usage is None else self._usage
        replica = self._replica_of(pod)
        uid = pod["metadata"]["uid"]
        _, before = self._usage.get(uid, (replica, PeakUsage()))
        self._usage[uid] = replica, before.with_sample(measured)

    def pack(self) -> None:
        """Compress the pods and drop what only subscribers need, until `unpack`."""
        self._is_packed = True
        self._packed_pods |= {uid: packed(pod) for uid, pod in self._pods.items()}
        self._pods, self._deleted, self._usage = {}, None, None
        if not self._is_over:
            self._events = {}

    def unpack(self) -> None:
        """Uncompress the pods for the first subscriber."""
        self._is_packed = False
        pods, self._packed_pods = self._packed_pods, {}
        for pod in pods.values():
            self.set_pod(unpacked(pod))

    # --- read by subscribers

    async def observations(self) -> AsyncGenerator[Observation, None]:
        """Yield the state once it is complete, and again after each change; see `Backend.watch`.

        Raises:
            PTJobError: the server refuses the watch. Log readers continue with the cached state.
        """
        version, delivered, knows_end = -1, 0, False
        while True:
            await self.notifier.until(
                lambda version=version: self.is_complete and self.notifier.version > version  # type: ignore[misc]
            )
            version = self.notifier.version
            deleted = [pod for number, pod in self._deleted or () if number > delivered]
            delivered = self._deletions
            job = self._packed_job  # before `yield`: the job may be deleted while the consumer runs
            if job is None and self._packed_end is not None and not knows_end:
                yield self._observation(deleted, self._packed_end)
                deleted = []
            knows_end = self._is_over
            yield self._observation(deleted, job)
            if job is None:
                return
            if deleted:
                yield self._observation([], job)

    async def pod(self, name: str) -> Manifest | None:
        """Return the newest existing pod of the replica; None if there is none."""
        self._check()
        pods = [pod for pod in self._pods.values() if self._replica_of(pod) == name]
        return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def last_state(self, uid: str) -> Manifest | None:
        """Return the last known state of an existing or deleted pod; None if it is not cached."""
        deleted_states = (pod for _, pod in reversed(self._deleted or ()) if pod["metadata"]["uid"] == uid)
        return self._pods.get(uid) or next(deleted_states, None)

    async def refresh_pods(self) -> None:
        """Read the pods from the server, because the watch of pods may lag behind the watch of jobs.

        Raises:
            ClusterError: the server refuses the request. An unresponsive server is retried.
        """
        if self.list_pods is not None:
            await self.list_pods(self)

    async def job(self) -> Manifest | None:
        """Return the job's current state; None if it is gone."""
        self._check()
        return self.read_job()

    async def change(self, timeout: float) -> None:  # noqa: ASYNC109 - not a limit: the caller checks again after it
        """Wait for the next change, or until the timeout."""
        before = self.notifier.version
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):  # `wait_for` may swallow a cancellation before Python 3.12
                await self.notifier.until(lambda: self.notifier.version > before, though_refused=True)

    def usage(self) -> dict[str, PeakUsage]:
        """Return the usage measured while the job has subscribers: replica's name → usage."""
        return of_pods((self._usage or {}).values())

    # --- read by the informer

    def read_job(self) -> Manifest | None:
        """Return the job's current state; None if it is gone."""
        return unpacked(self._packed_job) if self._packed_job else None

    @property
    def pods(self) -> Mapping[str, Manifest]:
        """Return the existing pods: uid → pod; empty while the cache is packed."""
        return self._pods

    @property
    def pod_uids(self) -> list[str]:
        """Return the uids of the existing pods."""
        return [*self._pods, *self._packed_pods]

    @property
    def events(self) -> Sequence[Manifest]:
        """Return the last events about the job and its pods, and Kueue's reasons as events."""
        return list(self._events.values())

    @property
    def running(self) -> list[Manifest]:
        """Return the running pods, if the job runs."""
        if self.phase is not JobPhase.RUNNING:
            return []
        return [pod for pod in self._pods.values() if pod["status"].get("phase") == "Running"]

    @property
    def has_surely_stopped(self) -> bool:
        """Return whether no pod runs or will run, which is certain even if the watch of pods lags behind.

        True if the job has ended and each replica has an ended pod, because the end of a pod is final. Also if it ended
        without having started, such as while it was suspended: then it never had pods.
        """
        ended_replicas = {self._replica_of(pod) for pod in self._pods.values() if has_ended(pod)}
        never_started = self._is_over and not self._has_started and not self._pods and not self._deleted
        return never_started or (self._is_over and len(ended_replicas) == len(self._pods) == self._replicas)

    @property
    def _is_over(self) -> bool:
        return self.phase is not None and self.phase.is_terminal

    @property
    def needs_queue_reason(self) -> bool:
        """Return whether the job is suspended in a queue of Kueue, whose Workload has the reason."""
        return self.phase is JobPhase.SUSPENDED and self._is_in_queue and self._packed_job is not None

    def event_selectors(self) -> list[str]:
        """Return the field selectors of the events that are needed now.

        They select the events about:

        - pods that do not start;
        - the job, and the creator of its pods, while pods are missing or are being deleted;
        - a failed job: there the operator reports the pods that it could not create, those that it deleted itself, and
          the ends of deleted pods;
        - a deleted rank 0, if other pods of a failed job may have waited for it.
        """
        if self._packed_job is None or self.phase in {JobPhase.SUSPENDED, JobPhase.SUCCEEDED, None}:
            return []
        is_over = self.phase is JobPhase.FAILED
        vague = [] if is_over else [uid for uid, pod in self._pods.items() if _is_vague(pod)]
        has_deletions = any("deletionTimestamp" in pod["metadata"] for pod in self._pods.values())
        lacks_pods = len(self._pods) < self._replicas
        selectors = [by_uid(self.ref.uid)] if is_over or vague or has_deletions or lacks_pods else []
        selectors += [by_name(*each) for each in self._controllers if lacks_pods and not is_over]
        if is_over and self._rank0_was_waited_for:
            selectors.append(by_name("Pod", self._rank0))
        return [*selectors, *(by_uid(uid) for uid in vague[:_MAX_WAITING])]

    @property
    def _rank0_was_waited_for(self) -> bool:
        """Return whether an init container, which may have waited for rank 0, has failed, and rank 0's pod is gone."""
        inits = (each for pod in self._pods.values() for each in pod["status"].get("initContainerStatuses") or ())
        has_failed = any(((each.get("state") or {}).get("terminated") or {}).get("exitCode") for each in inits)
        is_named = kinds.named(self.ref.kind).HAS_FIXED_POD_NAMES
        return has_failed and is_named and self._rank0 not in map(self._replica_of, self._pods.values())

    def _check(self) -> None:
        if self.notifier.error is not None:
            raise self.notifier.error

    def _observation(self, deleted: list[Manifest], job: bytes | None) -> Observation:
        pods = [*deleted, *self._pods.values()]
        return Observation(job=unpacked(job) if job else None, pods=pods, events=self.events)


def _version(pod: Manifest | None) -> int:
    return int(pod["metadata"].get("resourceVersion") or 0) if pod else 0


def packed(manifest: Manifest) -> bytes:
    """Return the object as JSON that is compressed for speed rather than size."""
    return zlib.compress(json.dumps(manifest, separators=(",", ":")).encode(), 1)


def unpacked(data: bytes) -> Manifest:
    """Return the object that was packed."""
    manifest: Manifest = json.loads(zlib.decompress(data))
    return manifest


def _is_vague(pod: Manifest) -> bool:
    """Return whether the pod is scheduled and not running, and its status gives no reason."""
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
