"""The world of one job while somebody follows it: its object, its pods, and the events that say why it waits.

Everybody on a loop who follows the same job shares one world: the watcher and the readers of its logs. It holds what is
there now; pods that have gone are told once to each of them, with their last state. Its board keeps it up to date.
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
from ptjob_provider.core.hub import Mailbox
from ptjob_provider.core.kinds.ours import QUEUE_LABEL
from ptjob_provider.core.kubernetes.board.subjects import by_name, by_uid, told_at
from ptjob_provider.core.measured import Use, of_pods
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from ptjob_provider.core.identity import JobRef, Manifest

_REMEMBERED = 256
"""Pods that have gone, per job, that a slow follower may still hear of."""

_ASKED_ABOUT = 4
"""Of how many pods that do not say why they wait the events are read: the others wait for the same reason."""

ENDED = {"Succeeded", "Failed"}
"""The phases of a pod that are final."""

_VAGUE = {"ContainerCreating", "PodInitializing", ""}


class World:
    """One job. A job that waits is kept packed, for that is a twentieth of what its objects would take.

    Args:
        ref: the job.
        asks: shows the world the job's pods as the server has them now. None: there is no job to ask about.
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

    def __init__(self, ref: JobRef, asks: Callable[[World], Awaitable[None]] | None = None) -> None:
        self.ref = ref
        self._asks = asks
        self.box = Mailbox()
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
        self._used: dict[str, tuple[str, Use]] | None = None

    # --- what its board tells

    def show_job(self, job: Manifest | None) -> None:
        """Take the job as it is now; None if it is gone."""
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
        """Take a pod as it is now; what is known to be gone, or as it was later, stays.

        Args:
            pod: the object.
            is_news: whether the watch tells it: a pod is back that was only not listed, by a server that was behind.
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
        """Take the last state of a pod that is gone."""
        self._pods.pop(pod["metadata"]["uid"], None)
        self._gone = self._gone if self._gone is not None else deque(maxlen=_REMEMBERED)
        self._number_of_gone += 1
        self._gone.append((self._number_of_gone, pod))
        self.box.ring()

    def forget_versions(self) -> None:
        """Take what is told of pods next for the newest, whatever its version: the server was set back."""
        self._gone = None
        for pod in self._pods.values():
            pod["metadata"].pop("resourceVersion", None)

    def show_events(self, events: Mapping[str, Manifest]) -> None:
        """Take the events that were found about the job and its pods: uid → event.

        What is asked about by its name may have been an earlier job's: what was told before this one was made is left.
        """
        found = {uid: event for uid, event in events.items() if told_at(event) >= self._created_at}
        if found != self._events:
            self._events = found
            self.box.ring()

    def show_measured(self, pod: Manifest, measured: Mapping[str, Any]) -> None:
        """Take what one of its pods uses now; nobody is woken for that."""
        self._used = {} if self._used is None else self._used
        replica = self._replica_of(pod)
        uid = pod["metadata"]["uid"]
        _, before = self._used.get(uid, (replica, Use()))
        self._used[uid] = replica, before.seen(measured)

    # --- what its followers read

    async def observations(self) -> AsyncGenerator[Observation, None]:
        """Yield what is there as soon as all of it is known, and again after each change; see `Backend.watch`.

        Raises:
            PTJobError: the server refuses to let this be watched; who reads logs goes on with what is known.
        """
        seen, told = -1, 0
        while True:
            await self.box.until(lambda seen=seen: self.is_known and self.box.version > seen)  # type: ignore[misc]
            seen = self.box.version
            gone = [pod for number, pod in self._gone or () if number > told]
            told = self._number_of_gone
            is_gone = self._packed is None  # it may go while what was yielded is looked at
            yield self._observation(gone)
            if is_gone:
                return
            if gone:
                yield self._observation([])

    async def pod(self, name: str) -> Manifest | None:
        """Return the newest pod of the replica of this name as it is now; None if there is none."""
        self._check()
        found = [pod for pod in self._pods.values() if self._replica_of(pod) == name]
        return max(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def last_state(self, uid: str) -> Manifest | None:
        """Return the last state of a pod that was seen, gone or not; None if it was not seen lately."""
        gone = (pod for _, pod in reversed(self._gone or ()) if pod["metadata"]["uid"] == uid)
        return self._pods.get(uid) or next(gone, None)

    async def ask_for_pods(self) -> None:
        """Have the pods as the server has them now: news of them may come later than news of the job.

        Raises:
            ClusterError: the server refuses to tell. One that does not answer is asked again.
        """
        if self._asks is not None:
            await self._asks(self)

    async def job(self) -> Manifest | None:
        """Return the job as it is now; None if it is gone."""
        self._check()
        return self.read_job()

    async def change(self, timeout: float) -> None:  # noqa: ASYNC109 - not a limit: the time of the next look
        """Return after the next change, or when the time is over."""
        before = self.box.version
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):  # `wait_for` may swallow a cancellation before Python 3.12
                await self.box.until(lambda: self.box.version > before, though_refused=True)

    def used(self) -> dict[str, Use]:
        """Return what its replicas were measured to use since it is followed, by their names."""
        return of_pods((self._used or {}).values())

    # --- what its board reads

    def read_job(self) -> Manifest | None:
        """Return the job as it was shown; None if it is gone."""
        return unpacked(self._packed) if self._packed else None

    @property
    def pods(self) -> Mapping[str, Manifest]:
        """The pods that are there: uid → pod."""
        return self._pods

    @property
    def events(self) -> Sequence[Manifest]:
        """What was found last about the job, its pods and its place in a queue."""
        return list(self._events.values())

    @property
    def running(self) -> list[Manifest]:
        """The pods that run, if the job does."""
        if self.phase is not JobPhase.RUNNING:
            return []
        return [pod for pod in self._pods.values() if pod["status"].get("phase") == "Running"]

    @property
    def has_surely_stopped(self) -> bool:
        """Whether no pod runs or will, even if news of them is late.

        The end of a pod is final, so it is enough to have seen as many end as the job has replicas; and a job that has
        ended without having started, as a suspended one may, never had any.
        """
        ended = {self._replica_of(pod) for pod in self._pods.values() if pod["status"].get("phase") in ENDED}
        never_started = self._is_over and not self._has_started and not self._pods and not self._gone
        return never_started or (self._is_over and len(ended) == len(self._pods) == self._replicas)

    @property
    def _is_over(self) -> bool:
        return self.phase is not None and self.phase.is_terminal

    @property
    def asks_queue(self) -> bool:
        """Whether a queue keeps the job from running, and knows why."""
        return self.phase is JobPhase.SUSPENDED and self._is_in_queue and self._packed is not None

    def asks_about(self) -> list[str]:
        """Return whose events tell something, as field selectors.

        Those of pods that do not start; those of the job, and of what makes its pods, while pods are made or go, and
        those of the job when it has failed: there the operator says which pods it could not make, which it deleted
        itself, and how pods ended that are gone. Of those that failed waiting for rank 0, which is gone, its own.
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
        """Tell whether an init container of a pod has failed that may have waited for rank 0's pod, which is gone."""
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
    """Return an object in as little memory as is quickly done."""
    return zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 1)


def unpacked(data: bytes) -> Manifest:
    """Return the object that was packed."""
    found: Manifest = json.loads(zlib.decompress(data))
    return found


def _is_vague(pod: Manifest) -> bool:
    """Whether the pod has a place, does not run, and does not say why."""
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
