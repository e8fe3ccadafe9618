"""Cache a namespace's jobs and their pods, with one watch of each that all subscribers of an event loop share.

Subscribers read the `JobCache` of their job. A live job with our label stays cached without subscribers, so that the
next subscriber needs no request; an ended job is evicted. While the event loop follows a single job, that job is
watched by name. Jobs without our label share a watch of their own, and are cached only while they have subscribers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.backend import CURRENT, View
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, JobNotFound, PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.informer.cache import JobCache
from ptjob_provider.core.kubernetes.informer.events import EventPoller
from ptjob_provider.core.kubernetes.informer.reflector import (
    Applied,
    Deleted,
    Reflector,
    RequestRefused,
    Synced,
)
from ptjob_provider.core.kubernetes.informer.scope import PodOwnerIndex, WatchScope, by_uid
from ptjob_provider.core.kubernetes.informer.usage_sampler import UsageSampler
from ptjob_provider.core.shared import Notifier, alone_or_all, opened, shared_source
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from typing import Any

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.config import ClusterConfig
    from ptjob_provider.core.kubernetes.informer.reflector import Event

logger = logging.getLogger(__name__)

_LINGER = 10.0
"""Seconds for which an informer without subscribers stays open: the next trigger or log reader may need it."""

_AT_ONCE = 50
"""Subscribers that start per iteration of the event loop: thousands may arrive at once, and each unpacks its job."""

_KEPT = 30.0
"""Seconds for which jobs without subscribers stay cached after a refused watch works again: subscribers retry."""

_UNLABELLED_INTERVAL = 30.0
"""Seconds between polls of a job that no longer has the label by which it was watched."""

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@asynccontextmanager
async def subscribe(config: ClusterConfig, ref: JobRef) -> AsyncIterator[JobCache]:
    """Subscribe to the job's cache, which is complete on entry and then kept up to date.

    Raises:
        ClusterError: the server refuses the watch.
    """
    labelled = WatchScope(config=config, kind=ref.kind, namespace=ref.namespace)
    scope = alone_or_all(replace(labelled, name=ref.name), lambda each: replace(each, name="", ours=True))
    async with _shared_informer(scope) as informer, informer.subscription(ref) as cache:
        if cache is not None:
            yield cache
            return
    async with _shared_informer(replace(labelled, ours=False)) as informer, informer.subscription(ref) as cache:
        yield cache if cache is not None else _cache_without_job(ref)


def cached_job(config: ClusterConfig, ref: JobRef) -> JobCache | None:
    """Return the job's cache if it is complete and has subscribers on this event loop. Makes no request."""
    informer = informer_of(config, ref)
    return informer.cached(ref) if informer is not None else None


def informer_of(config: ClusterConfig, ref: JobRef) -> JobInformer | None:
    """Return the informer of this event loop that has subscribers of the job, if there is one. Makes no request."""
    labelled = WatchScope(config=config, kind=ref.kind, namespace=ref.namespace)
    for scope in (replace(labelled, name=ref.name), labelled, replace(labelled, ours=False)):
        informer = opened(scope)
        if isinstance(informer, JobInformer) and informer.cached(ref) is not None:
            return informer
    return None


def _shared_informer(scope: WatchScope) -> contextlib.AbstractAsyncContextManager[JobInformer]:
    return shared_source(scope, lambda: JobInformer(scope), linger=_LINGER)


def _cache_without_job(ref: JobRef) -> JobCache:
    cache = JobCache(ref)
    cache.set_job(None)
    return cache


class JobInformer:
    """Watches the jobs of a scope and their pods, and keeps a cache per job; a `shared.ChangeSource`."""

    def __init__(self, scope: WatchScope) -> None:
        self._scope = scope
        self._keeps = scope.ours or bool(scope.name)
        self._notifier = Notifier()
        self._synced: set[str] = set()
        self._refused: set[str] = set()
        self._caches: dict[str, JobCache] = {}
        self._ended: set[str] = set()
        self._is_older = False
        self._pods_watch: asyncio.Timeout | None = None
        self._owners = PodOwnerIndex(kinds.named(scope.kind))
        self._events = EventPoller(scope.namespace)
        self._sampler = UsageSampler(scope.namespace, scope.config.usage_interval, self._pod_query)
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._confirmed: dict[str, float] = {}
        self._live = 0.0
        self._tasks: asyncio.TaskGroup
        self._client: Client

    async def run(self) -> None:
        """Update the caches until cancelled; see `shared.ChangeSource`."""
        try:
            async with shared_client(self._scope.config) as self._client, asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._watch_jobs())
                self._tasks.create_task(self._watch_pods())
                self._tasks.create_task(self._events.run(self._client))
                self._tasks.create_task(self._sampler.run(self._client))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def fail(self, error: BaseException) -> None:
        """See `shared.ChangeSource`."""
        self._notifier.fail(error)
        for cache in self._caches.values():
            cache.notifier.fail(error)

    # --- subscriptions

    @asynccontextmanager
    async def subscription(self, ref: JobRef) -> AsyncIterator[JobCache | None]:
        """Subscribe to the job's cache, and yield the cache once it is complete; None if the job is outside the scope.

        Raises:
            PTJobError: the server refuses the watch. The watch is retried, and a new subscription gets the same cache.
        """
        await self._notifier.until(lambda: self._synced == {"jobs", "pods"} and not self._refused)
        async with self._turn:
            await asyncio.sleep(0)
        cache = self._caches.get(ref.uid) or self._add(ref)
        cache.subscribers += 1
        try:
            if cache.subscribers == 1:
                self._begin(cache)
            await cache.notifier.until(lambda: cache.is_complete or self._is_out_of_scope(cache))
            yield cache if cache.is_complete else None
        finally:
            cache.subscribers -= 1
            if not self._refused:
                self._release(cache)

    def view(self) -> View:
        """Return how current both watches are; see `Backend.view`."""
        return View(live=self._live, age=asyncio.get_running_loop().time() - self._confirmed_at)

    @property
    def _confirmed_at(self) -> float:
        """When the server last confirmed both watches, by the loop's clock; minus infinity for never."""
        return min(self._confirmed.get(part, -math.inf) for part in ("jobs", "pods"))

    def _confirm(self, part: str) -> None:
        """Note that the server has confirmed a watch; time without confirmations for long does not count as live."""
        before = self._confirmed_at
        self._confirmed[part] = asyncio.get_running_loop().time()
        passed = self._confirmed_at - before
        self._live += passed if passed <= CURRENT else 0.0

    def cached(self, ref: JobRef) -> JobCache | None:
        """Return the cache of a job if it is complete and has subscribers; else None."""
        cache = self._caches.get(ref.uid)
        return cache if cache is not None and cache.subscribers and cache.is_complete else None

    def _add(self, ref: JobRef) -> JobCache:
        cache = self._caches[ref.uid] = JobCache(ref, self._list_pods)
        cache.pack()
        return cache

    def _begin(self, cache: JobCache) -> None:
        """Prepare a cache for its first subscriber; read a job that the watch has not delivered or no longer covers."""
        cache.unpack()
        if cache.is_complete:
            self._update_pollers(cache)
        if cache.version < 0:
            self._start(cache, self._verify(cache) if cache.is_complete else self._fetch(cache))

    async def _fetch(self, cache: JobCache) -> None:
        job = await self._read_job(cache)
        if self._caches.get(cache.ref.uid) is not cache:
            return  # released meanwhile
        if job is not None and not self._scope.has(job):
            del self._caches[cache.ref.uid]
            cache.notifier.notify()
        elif job is None:
            cache.set_job(None)
        else:
            self._detect_old_operator(job)
            await self._list_pods(cache)
            self._take_job(job)

    def _is_out_of_scope(self, cache: JobCache) -> bool:
        """Return whether the cache was removed because its job is outside the scope, not because of an error."""
        return self._caches.get(cache.ref.uid) is not cache and cache.notifier.error is None

    def _release(self, *caches: JobCache) -> None:
        """Evict caches without subscribers, except those of live jobs that the watch keeps up to date."""
        for cache in caches:
            uid = cache.ref.uid
            if cache.subscribers or self._caches.get(uid) is not cache:
                continue
            self._drop_pollers(cache)
            job = cache.read_job() if self._keeps and cache.version >= 0 else None
            if job is not None and self._is_kept(job):
                cache.pack()
                continue
            del self._caches[uid]
            if job is not None:
                self._ended.add(uid)

    def _is_kept(self, job: Manifest) -> bool:
        """Return whether the job is cached even without subscribers."""
        is_live = not kinds.read_status(job).phase.is_terminal
        return self._keeps and self._scope.has(job) and (is_live or bool(self._scope.name))

    def _start(self, cache: JobCache, work: Coroutine[Any, Any, None]) -> None:
        """Run the work in a task; an error fails only the subscribers of this job, and evicts its cache."""

        async def run() -> None:
            with self._contained(cache.ref.uid):
                await work

        self._tasks.create_task(run())

    @contextlib.contextmanager
    def _contained(self, uid: str) -> Iterator[None]:
        """Handle an object of one job: an error fails only the subscribers of this job, and evicts its cache."""
        try:
            yield
        except Exception as raised:
            error = raised
            if not isinstance(raised, PTJobError):
                logger.exception("an object of the job with the uid %s cannot be read", uid)
                error = ClusterError(f"an object of the job cannot be read: {raised!r}; the traceback is in the log")
            if (cache := self._caches.pop(uid, None)) is not None:
                self._drop_pollers(cache)
                cache.notifier.fail(error)

    def _update_pollers(self, cache: JobCache) -> None:
        """Register the job for events and usage samples, as far as its current state needs them."""
        if cache.subscribers:
            self._events.update(cache)
            self._sampler.update(cache)

    def _drop_pollers(self, cache: JobCache) -> None:
        self._events.drop(cache)
        self._sampler.drop(cache)

    # --- requests

    async def _read_job(self, cache: JobCache) -> Manifest | None:
        """Return the job as the server has it; None if it is gone."""
        ref = cache.ref
        path = paths.jobs(ref.kind, ref.namespace, ref.name)
        try:
            job = await _until_answered(lambda: self._client.object(path))
        except JobNotFound:
            return None
        return job if job["metadata"]["uid"] == ref.uid else None

    async def _list_pods(self, cache: JobCache) -> None:
        """Read the job's pods from the API server into its cache.

        Needed because the watch may lag, and because pods of ended and of unlabelled jobs may not have been cached.
        """
        ref = cache.ref
        query = {"labelSelector": kinds.named(ref.kind).pod_selector(ref.name, older=self._is_older)}
        for pod in await _until_answered(lambda: self._client.items(paths.pods(ref.namespace), **query)):
            if kinds.is_pod_of(pod, ref) and self._owners.uid_of(pod) in {ref.uid, ""}:
                cache.set_pod(_stripped(pod))

    # --- jobs

    async def _watch_jobs(self) -> None:
        path = paths.jobs(self._scope.kind, self._scope.namespace)
        confirm = partial(self._confirm, "jobs")
        reflector = Reflector(self._client, path, self._scope.of_jobs, known=self._known_jobs, confirm=confirm)
        async with aclosing(reflector.events()) as events:
            async for event in events:
                self._handle_refusal("jobs", event)
                match event:
                    case Applied(job, is_listed):
                        with self._contained(job["metadata"]["uid"]):
                            self._take_job(job, is_listed=is_listed)
                    case Deleted(job):
                        self._lose_job(job["metadata"]["uid"], job)
                    case Synced(missing):
                        for uid in missing:
                            self._lose_job(uid)
                        self._set_synced("jobs")

    def _known_jobs(self) -> set[str]:
        return {*self._caches, *self._ended}

    def _take_job(self, job: Manifest, *, is_listed: bool = False) -> None:
        ref, version = JobRef.of(job), int(job["metadata"]["resourceVersion"])
        self._detect_old_operator(job)
        cache = self._caches.get(ref.uid)
        if cache is not None and version <= cache.version and not is_listed:
            return
        early_pods = self._owners.learn(job)
        if self._is_kept(job) or (cache is not None and cache.subscribers):
            cache = cache or self._add(ref)
            cache.version = version
            self._ended.discard(ref.uid)  # an ended job that is live again: the server was restored from a backup
            self._publish(cache, _stripped(job))
        elif self._keeps:
            self._caches.pop(ref.uid, None)
            self._ended.add(ref.uid)
        for pod in early_pods:
            self._take_pod(pod)

    def _publish(self, cache: JobCache, job: Manifest) -> None:
        has_failed = kinds.read_status(job).phase is JobPhase.FAILED
        if has_failed and cache.phase is not JobPhase.FAILED:
            self._start(cache, self._publish_end(cache, job, cache.version))
        else:
            cache.set_job(job)
            self._update_pollers(cache)

    async def _publish_end(self, cache: JobCache, job: Manifest, version: int) -> None:
        """Read the operator's events before the end is published: subscribers do not wait for later events."""
        await self._events.read(self._client, {cache: [by_uid(cache.ref.uid)]})
        if cache.version == version:
            cache.set_job(job)
            self._update_pollers(cache)
            self._release(cache)

    def _lose_job(self, uid: str, last: Manifest | None = None) -> None:
        """Handle a job that the watch no longer has; `last` is its last state, if the watch has delivered it."""
        self._owners.forget(uid)
        self._ended.discard(uid)
        cache = self._caches.get(uid)
        if cache is None:
            return
        cache.version = -1
        if cache.subscribers:
            self._start(cache, self._publish_loss(cache, last))
        else:
            del self._caches[uid]

    async def _publish_loss(self, cache: JobCache, last: Manifest | None) -> None:
        """Publish the end that a lost job had at last; then a request decides whether the job is gone."""
        if last is not None and (phase := kinds.read_status(last).phase).is_terminal and phase is not cache.phase:
            await self._publish_end(cache, _stripped(last), version=-1)
        await self._verify(cache)

    async def _verify(self, cache: JobCache) -> None:
        """Poll a job that the watch no longer has, until it is gone or is in the scope again.

        The job may be gone or have lost its label, or the server that listed the jobs may lag behind.
        """
        while cache.subscribers and self._caches.get(cache.ref.uid) is cache:
            job = await self._read_job(cache)
            if job is None:
                cache.set_job(None)
                return
            self._take_job(job)
            if self._scope.has(job):
                return
            await asyncio.sleep(_UNLABELLED_INTERVAL)

    # --- pods

    async def _watch_pods(self) -> None:
        """Watch the pods by the labels of the installed operator, which the listed jobs show."""
        await self._notifier.until(lambda: "jobs" in self._synced)
        while True:
            with contextlib.suppress(TimeoutError):  # `_detect_old_operator` ends the watch, to use other labels
                async with asyncio.timeout(None) as self._pods_watch:
                    await self._watch_labelled_pods()

    async def _watch_labelled_pods(self) -> None:
        path = paths.pods(self._scope.namespace)
        confirm = partial(self._confirm, "pods")
        reflector = Reflector(self._client, path, self._pod_query(), known=self._known_pods, confirm=confirm)
        async with aclosing(reflector.events()) as events:
            async for event in events:
                self._handle_refusal("pods", event)
                match event:
                    case Applied(pod, is_listed):
                        with self._contained(self._owners.uid_of(pod)):
                            self._take_pod(pod, is_listed=is_listed)
                    case Deleted(pod):
                        with self._contained(self._owners.uid_of(pod)):
                            self._owners.drop(pod)
                            self._lose_pod(self._owners.uid_of(pod), pod["metadata"]["uid"], _stripped(pod))
                    case Synced(missing):
                        known = self._known_pods()
                        for uid in missing & known.keys():
                            self._lose_pod(known[uid], uid)
                        self._owners.drop_missing(missing)
                        self._set_synced("pods")

    def _detect_old_operator(self, job: Manifest) -> None:
        """Switch the watch of pods to the old operator's labels when its first job is received."""
        if not self._is_older and kinds.kind_of(job).is_older(job):
            self._is_older = True
            if self._pods_watch is not None:
                self._pods_watch.reschedule(0)

    def _pod_query(self) -> dict[str, str]:
        return self._scope.of_pods(older=self._is_older)

    def _known_pods(self) -> dict[str, str]:
        early = dict.fromkeys(self._owners.early_uids, "")
        return early | {pod: job for job, cache in self._caches.items() for pod in cache.pod_uids}

    def _take_pod(self, pod: Manifest, *, is_listed: bool = False) -> None:
        uid = self._owners.uid_of(pod)
        if not uid:
            self._owners.keep(_stripped(pod))
            return
        cache = self._caches.get(uid)
        if cache is None and self._keeps and uid not in self._ended:  # its job has not been received yet
            name = kinds.named(self._scope.kind).owner_of(pod).name
            cache = self._add(JobRef(kind=self._scope.kind, namespace=self._scope.namespace, name=name, uid=uid))
        if cache is not None:
            cache.set_pod(_stripped(pod), is_event=True, is_listed=is_listed)
            self._update_pollers(cache)

    def _lose_pod(self, job: str, uid: str, last: Manifest | None = None) -> None:
        cache = self._caches.get(job)
        if cache is None:
            return
        cache.remove_pod(uid, last)
        self._update_pollers(cache)
        if not (cache.subscribers or cache.version >= 0 or cache.is_complete or cache.pod_uids):
            del self._caches[job]  # its job was never received

    # --- jobs and pods

    def _handle_refusal(self, part: str, event: Event) -> None:
        """Fail all subscribers when the server refuses a watch; accept subscribers again when both watches work."""
        if isinstance(event, RequestRefused):
            self._refused.add(part)
            self._set_refused(event.error)
        elif part in self._refused:
            self._refused.discard(part)
            if not self._refused:
                self._set_refused(None)
                asyncio.get_running_loop().call_later(_KEPT, self._release, *self._caches.values())

    def _set_refused(self, error: PTJobError | None) -> None:
        self._notifier.refuse(error)
        for cache in self._caches.values():
            cache.notifier.refuse(error)

    def _set_synced(self, part: str) -> None:
        self._synced.add(part)
        self._notifier.notify()


async def _until_answered(request: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    while True:
        try:
            return await request()
        except ClusterUnavailable as error:
            await asyncio.sleep(error.retry_after or 1.0)


def _stripped(manifest: Manifest) -> Manifest:
    """Return the object without fields that are unused and often the longest; changes the object."""
    meta = manifest["metadata"]
    meta.pop("managedFields", None)
    (meta.get("annotations") or {}).pop(_LAST_APPLIED, None)
    return manifest
