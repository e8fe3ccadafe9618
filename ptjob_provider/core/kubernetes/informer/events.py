"""Poll why jobs wait: from core/v1 Events, and from the Workloads of Kueue.

Events are not in the API server's watch cache, and there are many of them. For a few objects they are therefore read
per object, for more with one list, and the interval grows while the same jobs wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable
from ptjob_provider.core.kinds.queue import JOB_UID_LABEL, as_event, owner_of
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.informer.scope import selectors_of
from ptjob_provider.core.shared import Notifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.informer.cache import JobCache

_SETTLING = 1.0
"""Seconds before the first poll: most jobs start, or their pods report a reason, within them."""

_PAUSES = (5.0, 60.0)
"""Minimum and maximum seconds between two polls."""

_FEW = 8
"""Maximum number of objects that are queried one by one."""

_IMPATIENT = 5.0
"""Maximum seconds of a one-off read."""


class Workloads:
    """Reads the Workloads of one namespace; tries first the API version that was served last."""

    def __init__(self, namespace: str) -> None:
        self._path, self._other_path = paths.workloads(namespace)

    async def list(self, client: Client, uid: str = "") -> Sequence[Manifest]:
        """Return the Workloads of the job with this uid, or of all jobs for "".

        Raises:
            ClusterError: they may not be read; with code 404: Kueue is not installed.
        """
        query = {"labelSelector": f"{JOB_UID_LABEL}={uid}"} if uid else {}
        try:
            return await client.items(self._path, **query)
        except ClusterError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
        self._path, self._other_path = self._other_path, self._path
        return await client.items(self._path, **query)


class EventPoller:
    """Polls the events about jobs of one namespace, which `update` registers."""

    def __init__(self, namespace: str) -> None:
        self._path = paths.events(namespace)
        self._workloads = Workloads(namespace)
        self._waiting: dict[str, JobCache] = {}
        self._notifier = Notifier()

    def update(self, cache: JobCache) -> None:
        """Register the job if it needs events, else unregister it."""
        if not (cache.event_selectors() or cache.needs_queue_reason):
            self.drop(cache)
        elif cache.ref.uid not in self._waiting:
            self._waiting[cache.ref.uid] = cache
            self._notifier.notify()

    def drop(self, cache: JobCache) -> None:
        """Unregister a job that needs no events or has no subscribers."""
        self._waiting.pop(cache.ref.uid, None)

    async def run(self, client: Client) -> None:
        """Poll while any job is registered, until cancelled."""
        before: set[str] = set()
        pause = _PAUSES[0]
        while True:
            await self._notifier.until(lambda: bool(self._waiting))
            await asyncio.sleep(_SETTLING)
            selectors_of_jobs = {
                cache: selectors for cache in self._waiting.values() if (selectors := cache.event_selectors())
            }
            queued = [cache for cache in self._waiting.values() if cache.needs_queue_reason]
            await self.read(client, selectors_of_jobs)
            await self._read_queues(client, queued)
            now = {each for selectors in selectors_of_jobs.values() for each in selectors}
            now |= {cache.ref.uid for cache in queued}
            pause = min(2 * pause, _PAUSES[1]) if now <= before else _PAUSES[0]
            before = now
            await asyncio.sleep(pause)

    async def read_now(self, client: Client, cache: JobCache) -> None:
        """Read the events of one waiting job now, within a short time limit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_IMPATIENT):
                if selectors := cache.event_selectors():
                    await self.read(client, {cache: selectors})
                if cache.needs_queue_reason:
                    await self._read_queues(client, [cache])

    async def read(self, client: Client, selectors_of_jobs: Mapping[JobCache, Sequence[str]]) -> None:
        """Read the selected events into each job's cache, or report there that the read was refused.

        Does nothing if the server is unavailable: the next poll reads them again.
        """
        all_selectors = [*dict.fromkeys(each for selectors in selectors_of_jobs.values() for each in selectors)]
        try:
            events = await self._by_selector(client, all_selectors)
        except ClusterUnavailable:
            return
        except ClusterError as error:
            events = {selector: {"": unreadable(error)} for selector in all_selectors}
        for cache, selectors in selectors_of_jobs.items():
            cache.set_events({uid: event for each in selectors for uid, event in events.get(each, {}).items()})

    async def _by_selector(self, client: Client, selectors: Sequence[str]) -> dict[str, dict[str, Manifest]]:
        """Return the selected events by uid: with one request per selector for a few of them, else with one list."""
        events: dict[str, dict[str, Manifest]] = {}
        wanted = set(selectors)
        for query in [{"fieldSelector": each} for each in selectors] if len(selectors) <= _FEW else [{}]:
            async for page in client.pages(self._path, **query):
                for event in page.items:
                    for selector in wanted.intersection(selectors_of(event)):
                        events.setdefault(selector, {})[event["metadata"]["uid"]] = event
        return events

    async def _read_queues(self, client: Client, queued: Sequence[JobCache]) -> None:
        """Read Kueue's reasons into the caches of queued jobs; report a refused read there, too."""
        by_job_uid = {cache.ref.uid: cache for cache in queued}
        try:
            for uid in by_job_uid if len(by_job_uid) <= _FEW else [""]:
                for workload in await self._workloads.list(client, uid):
                    event, cache = as_event(workload), by_job_uid.get(owner_of(workload))
                    if event is not None and cache is not None:
                        cache.set_events({event["metadata"]["uid"]: event})
        except ClusterUnavailable:
            return
        except ClusterError as error:
            for cache in queued if error.code != HTTPStatus.NOT_FOUND else ():
                cache.set_events({"": unreadable(error)})


def unreadable(error: ClusterError) -> Manifest:
    """Return a synthetic event which reports that the server has refused to return the reasons."""
    return {"metadata": {}, "reason": "NotApplied", "message": f"cannot read why it waits: {error}"}
