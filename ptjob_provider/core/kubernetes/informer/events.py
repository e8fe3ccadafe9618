"""Poll the reasons of waiting jobs: core/v1 Events at growing intervals, and Kueue's Workloads.

Events are not in the server's watch cache, and there are many: they are read per object for a few jobs and by one list
for many, less and less often while the same jobs keep waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable
from ptjob_provider.core.kinds.queue import JOB_UID_LABEL, as_event, owner_of
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.informer.scope import subjects_of
from ptjob_provider.core.shared import Notifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.informer.cache import JobCache


class Workloads:
    """The Workloads of one namespace; the version that answered last is tried first."""

    def __init__(self, namespace: str) -> None:
        self._path, self._other_path = paths.workloads(namespace)

    async def workloads(self, client: Client, uid: str = "") -> list[Manifest]:
        """Return the Workloads of the job with this uid; of all jobs if it is "".

        Raises:
            ClusterError: they may not be read; 404: the server has no Kueue.
        """
        query = {"labelSelector": f"{JOB_UID_LABEL}={uid}"} if uid else {}
        try:
            return await client.items(self._path, **query)
        except ClusterError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
        self._path, self._other_path = self._other_path, self._path
        return await client.items(self._path, **query)


_SETTLING = 1.0
"""Seconds for a job to report its own reason: most start within them."""

_PAUSES = (5.0, 60.0)
"""Seconds between two polls: at first, and at most."""

_FEW = 8
"""Maximum number of objects that are queried one by one."""

_IMPATIENT = 5.0
"""Seconds that a one-off read waits for the answers."""


class EventPoller:
    """Polls the events of the jobs of one namespace that `look_at` has registered."""

    def __init__(self, namespace: str) -> None:
        self._path = paths.events(namespace)
        self._queues = Workloads(namespace)
        self._asking: dict[str, JobCache] = {}
        self._box = Notifier()

    def look_at(self, world: JobCache) -> None:
        """Register the job while it needs events."""
        if world.asks_about() or world.asks_queue:
            if world.ref.uid not in self._asking:
                self._asking[world.ref.uid] = world
                self._box.ring()
        else:
            self._asking.pop(world.ref.uid, None)

    def drop(self, world: JobCache) -> None:
        """Unregister a job without followers."""
        self._asking.pop(world.ref.uid, None)

    async def run(self, client: Client) -> None:
        """Poll while any job is registered."""
        before: set[str] = set()
        pause = _PAUSES[0]
        while True:
            await self._box.until(lambda: bool(self._asking))
            await asyncio.sleep(_SETTLING)
            asking = {world: about for world in self._asking.values() if (about := world.asks_about())}
            subjects = {subject for about in asking.values() for subject in about}
            queued = [world for world in self._asking.values() if world.asks_queue]
            if subjects:
                await self._read_all(client, asking, subjects)
            await self._read_queues(client, queued)
            subjects |= {world.ref.uid for world in queued}
            pause = min(2 * pause, _PAUSES[1]) if subjects <= before else _PAUSES[0]
            before = subjects
            await asyncio.sleep(pause)

    async def ask(self, client: Client, world: JobCache) -> None:
        """Read the events of one waiting job now; slow answers are dropped."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_IMPATIENT):
                if about := world.asks_about():
                    await self.read(client, world, about)
                if world.asks_queue:
                    await self._read_queues(client, [world])

    async def read(self, client: Client, world: JobCache, about: Sequence[str]) -> None:
        """Read the events about these subjects into the job's world; failed reads are retried later or dropped."""
        found: dict[str, Manifest] = {}
        try:
            for subject in about:
                listed = await client.items(self._path, fieldSelector=subject)
                found |= {each["metadata"]["uid"]: each for each in listed}
        except ClusterUnavailable:
            return
        except ClusterError as error:
            found = _untold(error)
        world.show_events(found)

    async def _read_all(self, client: Client, asking: Mapping[JobCache, Sequence[str]], subjects: set[str]) -> None:
        if len(subjects) <= _FEW:
            for world, about in asking.items():
                await self.read(client, world, about)
            return
        try:
            found = await self._about(client, subjects)
        except ClusterUnavailable:
            return
        except ClusterError as error:
            found = dict.fromkeys(subjects, _untold(error))
        for world, about in asking.items():
            world.show_events({uid: event for subject in about for uid, event in found.get(subject, {}).items()})

    async def _read_queues(self, client: Client, queued: Sequence[JobCache]) -> None:
        """Read the queues' reasons into the waiting jobs; a forbidden read is reported, not taken for silence."""
        wanted = {world.ref.uid: world for world in queued}
        try:
            for uid in wanted if len(wanted) <= _FEW else [""]:
                for workload in await self._queues.workloads(client, uid):
                    event, world = as_event(workload), wanted.get(owner_of(workload))
                    if event is not None and world is not None:
                        world.show_events({event["metadata"]["uid"]: event})
        except ClusterUnavailable:
            return
        except ClusterError as error:
            for world in queued if error.code != HTTPStatus.NOT_FOUND else ():
                world.show_events(_untold(error))

    async def _about(self, client: Client, subjects: set[str]) -> dict[str, Mapping[str, Manifest]]:
        found: dict[str, dict[str, Manifest]] = {}
        async for page in client.pages(self._path):
            for event in page.items:
                for subject in subjects.intersection(subjects_of(event)):
                    found.setdefault(subject, {})[event["metadata"]["uid"]] = event
        return dict(found)


def _untold(error: ClusterError) -> dict[str, Manifest]:
    return {"": untold(error)}


def untold(error: ClusterError) -> Manifest:
    """Return a synthetic event for a forbidden read."""
    return {"metadata": {}, "reason": "NotApplied", "message": f"cannot read why it waits: {error}"}
