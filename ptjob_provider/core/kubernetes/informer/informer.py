"""Informer: caches a namespace's jobs of ours and their pods, with one watch each for all followers on a loop.

Followers read the `JobCache` of their job. A job without followers is cached in packed form while it is live, so that
the next follower needs no request, and is evicted when it has ended. A job that only one process follows is watched by
name; jobs of other owners share one watch.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterUnavailable, JobNotFound, PTJobError
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import lease
from ptjob_provider.core.kubernetes.informer.cache import JobCache, packed, unpacked
from ptjob_provider.core.kubernetes.informer.events import EventPoller
from ptjob_provider.core.kubernetes.informer.reflector import Applied, Complete, Deleted, Mark, News, Reflector, Refused
from ptjob_provider.core.kubernetes.informer.scope import PodOwnerIndex, WatchScope, by_uid
from ptjob_provider.core.kubernetes.informer.usage_sampler import UsageSampler
from ptjob_provider.core.shared import Notifier, alone_or_all, joined, opened
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.config import ClusterConfig

_LINGER = 10.0
"""Seconds that an informer stays open for the next follower: the next trigger, or the reader of the log's end."""


@asynccontextmanager
async def followed(config: ClusterConfig, ref: JobRef) -> AsyncIterator[JobCache]:
    """Subscribe to the job's world; its state is complete on entry and kept up to date.

    Raises:
        ClusterError: the server refuses the watch.
    """
    ours = WatchScope(config=config, kind=ref.kind, namespace=ref.namespace)
    selection = alone_or_all(replace(ours, name=ref.name), ours, lambda each: replace(each, name="", ours=True))
    async with (
        joined(selection, lambda: JobInformer(selection), linger=_LINGER) as board,
        board.following(ref) as world,
    ):
        if world is not None:
            yield world
            return
    others = replace(ours, ours=False)
    async with joined(others, lambda: JobInformer(others), linger=_LINGER) as board, board.following(ref) as world:
        yield world if world is not None else _world_without_job(ref)


def followed_world(config: ClusterConfig, ref: JobRef) -> JobCache | None:
    """Return the job's world if it is followed on this loop and complete; makes no request."""
    ours = WatchScope(config=config, kind=ref.kind, namespace=ref.namespace)
    for selection in (replace(ours, name=ref.name), ours, replace(ours, ours=False)):
        board = opened(selection)
        world = board.world(ref) if isinstance(board, JobInformer) else None
        if world is not None:
            return world
    return None


def _world_without_job(ref: JobRef) -> JobCache:
    world = JobCache(ref)
    world.show_job(None)
    return world


_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_AT_ONCE = 50
"""Followers that start per turn of the loop: each unpacks its job, and thousands may start at once."""

_KEPT = 30.0
"""Seconds that a world is cached after the server has refused its watch, for followers that retry."""

_UNLABELLED_INTERVAL = 30.0
"""Seconds between polls of a job that has lost the label by which it was watched."""


class JobInformer:
    """Cache of the jobs of a selection; a `hub.Source`."""

    def __init__(self, selection: WatchScope) -> None:
        self._selection = selection
        self._keeps = selection.ours or bool(selection.name)
        self._box = Notifier()
        self._complete: set[str] = set()
        self._refused: set[str] = set()
        self._worlds: dict[str, JobCache] = {}
        self._versions: dict[str, int] = {}
        self._jobs: dict[str, bytes] = {}
        self._pods: dict[str, dict[str, bytes]] = {}
        self._ended: set[str] = set()
        self._is_older = False
        self._pods_watch: asyncio.Timeout | None = None
        self._owners = PodOwnerIndex(kinds.named(selection.kind))
        self._reasons = EventPoller(selection.namespace)
        self._metering = UsageSampler(selection.namespace, selection.config.usage_interval, self._of_pods)
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._tasks: asyncio.TaskGroup
        self._client: Client

    async def run(self) -> None:
        """Update the cache until cancelled; see `hub.Source`."""
        try:
            async with lease(self._selection.config) as self._client, asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._watch_jobs())
                self._tasks.create_task(self._watch_pods())
                self._tasks.create_task(self._reasons.run(self._client))
                self._tasks.create_task(self._metering.run(self._client))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def fail(self, error: BaseException) -> None:
        """See `hub.Source`."""
        self._box.fail(error)
        for world in self._worlds.values():
            world.box.fail(error)

    @asynccontextmanager
    async def following(self, ref: JobRef) -> AsyncIterator[JobCache | None]:
        """Subscribe to the job's world, and enter once its state is complete; None if the job is outside the selection.

        Raises:
            PTJobError: the server refuses the watch; it is retried, and a new subscription gets the same world.
        """
        await self._box.until(lambda: self._complete == {"jobs", "pods"} and not self._refused)
        world = self._worlds.get(ref.uid)
        if world is None:
            world = self._worlds[ref.uid] = JobCache(ref, self._ask_for_pods)
            self._tasks.create_task(self._telling_followers(world, self._begin(world)))
        world.users += 1
        try:
            await world.box.until(lambda: world.is_known or self._is_not_ours(world))
            yield world if world.is_known else None
        finally:
            world.users -= 1
            if not self._refused:
                self._end_unused(world)

    def world(self, ref: JobRef) -> JobCache | None:
        """Return the cached state of a followed job, once its state is complete."""
        world = self._worlds.get(ref.uid)
        return world if world is not None and world.is_known else None

    # --- subscriptions

    async def _begin(self, world: JobCache) -> None:
        """Fill a world from the cache, else by requests."""
        async with self._turn:
            await asyncio.sleep(0)
            is_done = self._worlds.get(world.ref.uid) is not world or self._begin_with_what_is_kept(world)
        if not is_done:
            await self._begin_with_what_is_asked_for(world)

    def _begin_with_what_is_kept(self, world: JobCache) -> bool:
        """Fill a world from the packed cache, and return whether the job was in it."""
        uid = world.ref.uid
        kept = self._jobs.pop(uid, None)
        for pod, found in self._pods.pop(uid, {}).items():
            if pod not in world.pods:
                world.show_pod(unpacked(found))
        if kept is not None and not world.is_known:  # else a newer event has arrived since
            self._show(world, unpacked(kept))
        return kept is not None

    async def _begin_with_what_is_asked_for(self, world: JobCache) -> None:
        uid = world.ref.uid
        job = await self._asked(world)
        if job is not None and not self._selection.has(job):
            del self._worlds[uid]
            world.box.ring()
        elif job is None:
            world.show_job(None)
        else:
            self._see_age(job)
            await self._ask_for_pods(world)
            self._take_job(job)

    def _is_not_ours(self, world: JobCache) -> bool:
        """Return True if its job is outside the selection; False if the job could not be read."""
        return self._worlds.get(world.ref.uid) is not world and world.box.error is None

    def _end_unused(self, *worlds: JobCache) -> None:
        for world in worlds:
            if not world.users and self._worlds.get(world.ref.uid) is world:
                self._end(world)

    def _end(self, world: JobCache) -> None:
        uid = world.ref.uid
        del self._worlds[uid]
        self._drop(world)
        job = world.read_job()
        version = self._versions.pop(uid, None)
        if job is None or not self._is_kept(job):
            if self._keeps and job is not None:
                self._ended.add(uid)
            return
        self._pods[uid] = {pod: packed(found) for pod, found in world.pods.items()}
        if int(job["metadata"]["resourceVersion"]) == version:  # else the next follower reads the newest one
            self._jobs[uid] = packed(job)
            self._versions[uid] = version

    async def _asked(self, world: JobCache) -> Manifest | None:
        """Read the job from the server; None if it is gone."""
        ref = world.ref
        try:
            job = await self._until_answered(lambda: self._client.object(paths.jobs(ref.kind, ref.namespace, ref.name)))
        except JobNotFound:
            return None
        return job if job["metadata"]["uid"] == ref.uid else None

    async def _ask_for_pods(self, world: JobCache) -> None:
        """Read the pods that the watch has not delivered: the job has ended, is not ours, or the events are late."""
        ref = world.ref
        query = {"labelSelector": kinds.named(ref.kind).pod_selector(ref.name, older=self._is_older)}
        for pod in await self._until_answered(lambda: self._client.items(paths.pods(ref.namespace), **query)):
            if kinds.is_pod_of(pod, ref) and self._owners.uid_of(pod) in {ref.uid, ""}:
                world.show_pod(_stripped(pod))

    async def _telling_followers(self, world: JobCache, work: Coroutine[Any, Any, None]) -> None:
        """Run the work; a refusal fails only the followers of this job."""
        try:
            await work
        except PTJobError as error:
            self._worlds.pop(world.ref.uid, None)
            self._versions.pop(world.ref.uid, None)  # the next follower must get the job again
            self._drop(world)
            world.box.fail(error)

    async def _until_answered(self, ask: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        while True:
            try:
                return await ask()
            except ClusterUnavailable as error:
                await asyncio.sleep(error.retry_after or 1.0)

    def _drop(self, world: JobCache) -> None:
        """Stop requests for a job without followers."""
        self._reasons.drop(world)
        self._metering.drop(world)

    def _look_at(self, world: JobCache) -> None:
        """Update the requests that this job needs after a change."""
        self._reasons.look_at(world)
        self._metering.look_at(world)

    # --- jobs

    async def _watch_jobs(self) -> None:
        path = paths.jobs(self._selection.kind, self._selection.namespace)
        watch = Reflector(
            self._client, path, self._selection.of_jobs, known=lambda: {*self._worlds, *self._jobs, *self._ended}
        )
        async with aclosing(watch.news()) as news:
            async for each in news:
                self._see_whether_refused("jobs", each)
                if isinstance(each, Applied):
                    self._take_job(each.object)
                elif isinstance(each, Deleted):
                    self._lose_job(each.object["metadata"]["uid"], is_told=True)
                elif each is Mark.RESTORED:
                    self._versions.clear()
                elif isinstance(each, Complete):
                    for uid in each.gone:
                        self._lose_job(uid)
                    self._is_complete("jobs")

    def _take_job(self, job: Manifest) -> None:
        meta = job["metadata"]
        uid, version = meta["uid"], int(meta["resourceVersion"])
        self._see_age(job)
        if version <= self._versions.get(uid, -1):
            return
        early = self._owners.learn(job)
        world = self._worlds.get(uid)
        if world is not None:
            self._versions[uid] = version
            self._show(world, _stripped(job))
        elif self._is_kept(job):
            self._versions[uid] = version
            self._jobs[uid] = packed(_stripped(job))
            self._ended.discard(uid)  # the server was restored from a backup
        elif self._keeps:
            self._forget(uid)
            self._ended.add(uid)
        for pod in early:
            self._take_pod(pod)

    def _is_kept(self, job: Manifest) -> bool:
        """Return whether the job stays cached without followers."""
        return self._keeps and (bool(self._selection.name) or not _is_over(job))

    def _show(self, world: JobCache, job: Manifest) -> None:
        has_failed = kinds.read_status(job).phase is JobPhase.FAILED
        if has_failed and world.phase is not JobPhase.FAILED:
            self._tasks.create_task(self._telling_followers(world, self._show_failure(world, job)))
        else:
            world.show_job(job)
            self._look_at(world)

    async def _show_failure(self, world: JobCache, job: Manifest) -> None:
        """Publish a failure together with the operator's events: later ones are not waited for."""
        version = self._versions.get(world.ref.uid)
        await self._reasons.read(self._client, world, [by_uid(world.ref.uid)])
        if self._versions.get(world.ref.uid) == version:
            world.show_job(job)
            self._look_at(world)

    def _lose_job(self, uid: str, *, is_told: bool = False) -> None:
        """Evict a job that left the selection; without a DELETED event, a request decides whether it is gone."""
        world = self._worlds.get(uid)
        self._owners.forget(uid)
        self._forget(uid)
        self._ended.discard(uid)
        if world is not None and is_told and self._selection.name:
            world.show_job(None)
        elif world is not None:
            self._tasks.create_task(self._telling_followers(world, self._verify(world)))

    async def _verify(self, world: JobCache) -> None:
        """Poll a job that left the selection: it may be gone, or have lost its label.

        An unlisted job may also still exist: the server may lag behind.
        """
        while self._worlds.get(world.ref.uid) is world:
            job = await self._asked(world)
            if job is None:
                world.show_job(None)
                return
            self._take_job(job)
            if self._selection.has(job):
                return
            await asyncio.sleep(_UNLABELLED_INTERVAL)

    def _forget(self, uid: str) -> None:
        self._versions.pop(uid, None)
        self._jobs.pop(uid, None)
        self._pods.pop(uid, None)

    # --- pods

    async def _watch_pods(self) -> None:
        """Watch the pods by the label of the installed operator, as far as the jobs show which it is."""
        await self._box.until(lambda: "jobs" in self._complete)
        while True:
            with contextlib.suppress(TimeoutError):  # `_see_age` ends it: the pods have another label
                async with asyncio.timeout(None) as self._pods_watch:
                    await self._watch_labelled_pods()

    async def _watch_labelled_pods(self) -> None:
        path = paths.pods(self._selection.namespace)
        watch = Reflector(self._client, path, self._of_pods(), known=self._known_pods)
        async with aclosing(watch.news()) as news:
            async for each in news:
                self._see_whether_refused("pods", each)
                if isinstance(each, Applied):
                    self._take_pod(each.object)
                elif isinstance(each, Deleted):
                    self._owners.drop(each.object)
                    self._lose_pod(self._owners.uid_of(each.object), _stripped(each.object))
                elif each is Mark.RESTORED:
                    for world in self._worlds.values():
                        world.forget_versions()
                elif isinstance(each, Complete):
                    self._lose_pods(each.gone)
                    self._is_complete("pods")

    def _see_age(self, job: Manifest) -> None:
        """Switch the pod watch to the old label with the first job of the old operator."""
        if not self._is_older and kinds.kind_of(job).is_older(job):
            self._is_older = True
            if self._pods_watch is not None:
                self._pods_watch.reschedule(0)

    def _of_pods(self) -> dict[str, str]:
        return self._selection.of_pods(older=self._is_older)

    def _take_pod(self, pod: Manifest) -> None:
        job = self._owners.uid_of(pod)
        if not job:
            self._owners.keep(_stripped(pod))
            return
        world = self._worlds.get(job)
        if world is not None:
            world.show_pod(_stripped(pod), is_news=True)
            self._look_at(world)
        elif self._keeps and job not in self._ended:
            self._pods.setdefault(job, {})[pod["metadata"]["uid"]] = packed(_stripped(pod))

    def _lose_pod(self, job: str, pod: Manifest) -> None:
        world = self._worlds.get(job)
        if world is not None:
            world.lose_pod(pod)
            self._look_at(world)
        self._forget_pod(job, pod["metadata"]["uid"])

    def _forget_pod(self, job: str, uid: str) -> None:
        pods = self._pods.get(job, {})
        pods.pop(uid, None)
        if not pods:
            self._pods.pop(job, None)

    def _known_pods(self) -> dict[str, str]:
        followed = {pod: job for job, world in self._worlds.items() for pod in world.pods}
        return followed | {pod: job for job, pods in self._pods.items() for pod in pods}

    def _lose_pods(self, uids: set[str]) -> None:
        """Remove pods that no longer exist; followers get a last state only for pods that they had."""
        known = self._known_pods()
        for uid in uids & known.keys():
            job = known[uid]
            last = self._worlds[job].pods.get(uid) if job in self._worlds else None
            if last is not None:
                self._lose_pod(job, last)
            else:
                self._forget_pod(job, uid)

    # --- jobs and pods

    def _see_whether_refused(self, part: str, news: News) -> None:
        """Fail all followers when the server begins to refuse the watch, and resume them when it answers."""
        if isinstance(news, Refused):
            self._refused.add(part)
            self._refuse(news.error)
        elif part in self._refused and news is not Mark.BEGIN:
            self._refused.discard(part)
            if not self._refused:
                self._refuse(None)
                asyncio.get_running_loop().call_later(_KEPT, self._end_unused, *self._worlds.values())

    def _refuse(self, error: PTJobError | None) -> None:
        self._box.refuse(error)
        for world in self._worlds.values():
            world.box.refuse(error)

    def _is_complete(self, part: str) -> None:
        self._complete.add(part)
        self._box.ring()


def _is_over(job: Manifest) -> bool:
    return kinds.read_status(job).phase.is_terminal


def _stripped(found: Manifest) -> Manifest:
    """Drop fields that are unused and often the longest."""
    meta = found["metadata"]
    meta.pop("managedFields", None)
    (meta.get("annotations") or {}).pop(_APPLIED, None)
    return found
