"""Sample the usage of the replicas of followed jobs: one request to the metrics API per round, for all together."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.kubernetes import usage
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.shared import Notifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.informer.cache import JobCache

logger = logging.getLogger(__name__)

_FIRST = 30.0
"""Seconds that a replica runs before the first sample: a metrics server measures every 15, and publishes later."""

_SILENCE = 30.0
_AT_ONCE = 100


class UsageSampler:
    """Samples the running jobs of one informer, as registered by `look_at`.

    Args:
        namespace: of the informer; "" for all.
        interval: seconds between two samples; 0 disables sampling.
        of_pods: returns the query that selects the pods of its jobs.
    """

    def __init__(self, namespace: str, interval: float, of_pods: Callable[[], Mapping[str, str]]) -> None:
        self._namespace = namespace
        self._interval = interval
        self._of_pods = of_pods
        self._running: dict[str, JobCache] = {}
        self._box = Notifier()

    def look_at(self, world: JobCache) -> None:
        """Register the job while any of its pods runs."""
        if not world.running:
            self.drop(world)
        elif world.ref.uid not in self._running:
            self._running[world.ref.uid] = world
            self._box.ring()

    def drop(self, world: JobCache) -> None:
        """Unregister the job: it has no followers, or no running pods."""
        self._running.pop(world.ref.uid, None)

    async def run(self, client: Client) -> None:
        """Sample while anything runs."""
        while self._interval:
            await self._box.until(lambda: bool(self._running))
            await asyncio.sleep(min(_FIRST, self._interval))
            while self._running:
                await self._look(client)
                await asyncio.sleep(self._interval)

    async def _look(self, client: Client) -> None:
        try:
            found = await measured(client, self._namespace, self._of_pods())
        except PTJobError as error:
            logger.debug("%s: what replicas use is unknown: %s", self._namespace or "all namespaces", error)
            return
        for number, world in enumerate(list(self._running.values())):
            for pod in world.running:
                if figures := usage.figures_of(pod, found):
                    world.show_measured(pod, figures)
            if not number % _AT_ONCE:
                await asyncio.sleep(0)  # yields to other tasks


async def measured(client: Client, namespace: str, query: Mapping[str, str]) -> usage.Measured:
    """Read pod usage in one request to the metrics API, parsing the response as it arrives.

    The response for ten thousand pods is five megabytes. A malformed response ends early without an error: usage is not
    worth an informer.

    Args:
        client: of the cluster.
        namespace: of the pods; "" for all.
        query: selects the pods.

    Raises:
        PTJobError: there was no answer.
    """
    found: usage.Measured = {}
    path, reader = paths.pod_metrics(namespace), usage.ListReader("items")
    async with client.stream(path, silence=_SILENCE, **query) as chunks:
        async for chunk in chunks:
            try:
                found |= usage.from_metrics(reader.feed(chunk))
            except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
                logger.debug("%s: what replicas use cannot be read: %r", path, error)
                break
    return found
