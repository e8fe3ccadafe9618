"""The world of one job while somebody follows it: its object, its pods, and the events that say why it waits.

Everybody who follows the same job shares one world: the watcher and the readers of its logs. It holds what is there
now; pods that have gone are told once to each of them, with their last state.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING

from ptjob_provider.core.backend import Observation
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable
from ptjob_provider.core.kinds import pytorchjob
from ptjob_provider.core.kubernetes import paths
from ptjob_provider.core.kubernetes.watching import changes
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.client import Client

_REMEMBERED = 256
"""Pods that have gone, per job, that a slow follower may still hear of."""

_EVENTS_INTERVAL = 5.0
"""Seconds between looks at the events of a job that does not run yet; they are no part of the server's watch cache."""

_ASKED_ABOUT = 4
"""Of how many pods that do not say why they wait the events are read: the others wait for the same reason."""

_VAGUE = {"ContainerCreating", "PodInitializing", ""}


class World:
    """One job, watched from `start` to `stop`."""

    def __init__(self, client: Client, ref: JobRef) -> None:
        self._client = client
        self._ref = ref
        self._job: Manifest | None = None
        self._pods: dict[str, Manifest] = {}
        self._events: dict[str, Manifest] = {}
        self._gone: deque[tuple[int, Manifest]] = deque(maxlen=_REMEMBERED)
        self._number_of_gone = 0
        self._known: set[str] = set()
        self._version = 0
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin to watch."""
        watchers: tuple[Callable[[], Awaitable[None]], ...] = (self._watch_job, self._watch_pods, self._look_at_events)
        self._tasks = [asyncio.create_task(self._guarded(each)) for each in watchers]

    async def stop(self) -> None:
        """End all that `start` began."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def observations(self) -> AsyncGenerator[Observation, None]:
        """Yield what is there as soon as all of it is known, and again after each change; see `Backend.watch`.

        Raises:
            ClusterError: the server refuses to let this be watched.
        """
        seen, told = -1, 0
        while True:
            await self._until(lambda seen=seen: self._version > seen)  # type: ignore[misc]
            seen = self._version
            gone = [pod for number, pod in self._gone if number > told]
            told = self._number_of_gone
            yield self._observation(gone)
            if self._job is None:
                return
            if gone:
                yield self._observation([])

    async def pod(self, name: str) -> Manifest | None:
        """Return the pod of this name as it is now; None if there is none."""
        await self._until(lambda: self._is_complete)
        found = [pod for pod in self._pods.values() if pod["metadata"]["name"] == name]
        return max(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def last_state(self, uid: str) -> Manifest | None:
        """Return the last state of a pod that was seen, gone or not; None if it was not seen lately."""
        gone = (pod for _, pod in reversed(self._gone) if pod["metadata"]["uid"] == uid)
        return self._pods.get(uid) or next(gone, None)

    async def job(self) -> Manifest | None:
        """Return the job as it is now; None if it is gone."""
        await self._until(lambda: self._is_complete)
        return self._job

    async def change(self, timeout: float) -> None:  # noqa: ASYNC109 - not a limit: the time of the next look
        """Return after the next change, or when the time is over."""
        before = self._version
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):  # `wait_for` may swallow a cancellation before Python 3.12
                await self._until(lambda: self._version > before)

    @property
    def _is_complete(self) -> bool:
        return {"job", "pods"} <= self._known

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not (self._is_complete and holds()):
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()

    def _observation(self, gone: list[Manifest]) -> Observation:
        return Observation(job=self._job, pods=[*gone, *self._pods.values()], events=list(self._events.values()))

    def _take(self, part: str) -> None:
        self._known.add(part)
        self._version += 1
        self._changed.set()

    async def _guarded(self, watch: Callable[[], Awaitable[None]]) -> None:
        try:
            await watch()
        except Exception as error:  # noqa: BLE001 - raised again in whoever waits: a task that died would be waited for
            self._error = error
            self._changed.set()

    async def _watch_job(self) -> None:
        ref = self._ref
        path = paths.jobs(ref.kind, ref.namespace)
        async with aclosing(changes(self._client, path, fieldSelector=f"metadata.name={ref.name}")) as found:
            async for change in found:
                self._job = change.present.get(ref.uid)
                if self._job and pytorchjob.read_status(self._job).phase is JobPhase.FAILED:
                    await self._read_events([ref.uid])
                self._take("job")

    async def _watch_pods(self) -> None:
        path, selector = paths.pods(self._ref.namespace), pytorchjob.pod_selector(self._ref.name)
        async with aclosing(changes(self._client, path, labelSelector=selector)) as found:
            async for change in found:
                self._pods = {uid: pod for uid, pod in change.present.items() if is_pod_of(pod, self._ref)}
                for pod in change.gone:
                    if is_pod_of(pod, self._ref):
                        self._number_of_gone += 1
                        self._gone.append((self._number_of_gone, pod))
                self._take("pods")

    # --- events

    async def _look_at_events(self) -> None:
        await self._until(lambda: True)
        while True:
            about = self._asked_about()
            if about:
                await self._read_events(about)
            await self.change(_EVENTS_INTERVAL)
            await asyncio.sleep(1.0)

    def _asked_about(self) -> list[str]:
        """Return whose events tell something: uids.

        Those of pods that do not start; those of the job while pods are made or go, and when it has failed: there the
        operator says which pods it could not make, which it deleted itself, and how pods ended that are gone.
        """
        if self._job is None:
            return []
        phase = pytorchjob.read_status(self._job).phase
        vague = [] if phase.is_terminal else [uid for uid, pod in self._pods.items() if _is_vague(pod)]
        missing = len(self._pods) < len(pytorchjob.replicas(self._job)) and not phase.is_terminal
        leaving = any("deletionTimestamp" in pod["metadata"] for pod in self._pods.values())
        tells = missing or leaving or vague or phase is JobPhase.FAILED
        return [*([self._ref.uid] if tells else []), *vague[:_ASKED_ABOUT]]

    async def _read_events(self, about: list[str]) -> None:
        found: dict[str, Manifest] = {}
        path = paths.events(self._ref.namespace)
        try:
            for uid in about:
                listed = await self._client.get(path, fieldSelector=f"involvedObject.uid={uid}")
                found |= {each["metadata"]["uid"]: each for each in listed["items"]}
        except ClusterUnavailable:
            return
        except ClusterError as error:
            found = {"": {"reason": "NotApplied", "message": f"why it waits may stay untold: {error}"}}
        if found != self._events:
            self._events = found
            self._take("events")


def is_pod_of(pod: Manifest, ref: JobRef) -> bool:
    """Whether the pod belongs to this very job: a job of the same name that was deleted has left its own behind."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == ref.uid for owner in owners)


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
