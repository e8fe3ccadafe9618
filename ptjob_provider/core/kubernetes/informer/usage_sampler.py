"""Sample the CPU and memory usage of followed jobs: one request to the metrics API per round, for all jobs together."""

from __future__ import annotations

import asyncio
import json
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
"""Seconds before the first sample: a metrics server measures every 15 seconds, and publishes the value later."""

_SILENCE = 30.0
_AT_ONCE = 100


class UsageSampler:
    """Samples the usage of an informer's running jobs, which `update` registers.

    Args:
        namespace: namespace of the informer; "" for all namespaces.
        interval: seconds between two samples; 0 disables sampling.
        query: returns the query parameters that select the pods of the informer's jobs.
    """

    def __init__(self, namespace: str, interval: float, query: Callable[[], Mapping[str, str]]) -> None:
        self._namespace = namespace
        self._interval = interval
        self._query = query
        self._running: dict[str, JobCache] = {}
        self._notifier = Notifier()

    def update(self, cache: JobCache) -> None:
        """Register the job if any of its pods runs, else unregister it."""
        if not cache.running:
            self.drop(cache)
        elif cache.ref.uid not in self._running:
            self._running[cache.ref.uid] = cache
            self._notifier.notify()

    def drop(self, cache: JobCache) -> None:
        """Unregister a job that has no subscribers or no running pods."""
        self._running.pop(cache.ref.uid, None)

    async def run(self, client: Client) -> None:
        """Sample while any job is registered, until cancelled."""
        while self._interval:
            await self._notifier.until(lambda: bool(self._running))
            await asyncio.sleep(min(_FIRST, self._interval))
            while self._running:
                await self._sample(client)
                await asyncio.sleep(self._interval)

    async def _sample(self, client: Client) -> None:
        try:
            measured = await read_usage(client, self._namespace, self._query())
        except PTJobError as error:
            logger.debug("%s: usage is unavailable: %s", self._namespace or "all namespaces", error)
            return
        for number, cache in enumerate(list(self._running.values())):
            for pod in cache.running:
                if figures := usage.figures_of(pod, measured):
                    cache.add_usage(pod, figures)
            if not number % _AT_ONCE:
                await asyncio.sleep(0)  # yields to other tasks


async def read_usage(client: Client, namespace: str, query: Mapping[str, str]) -> usage.Measured:
    """Return the usage of pods, read in one request to the metrics API; empty for a malformed response.

    Requests a stream because streams are not retried: a missing sample is harmless.

    Args:
        client: client of the cluster.
        namespace: namespace of the pods; "" for all namespaces.
        query: query parameters that select the pods.

    Raises:
        PTJobError: the request failed or was refused.
    """
    path = paths.pod_metrics(namespace)
    async with client.stream(path, silence=_SILENCE, **query) as chunks:
        body = b"".join([chunk async for chunk in chunks])
    try:
        return await asyncio.to_thread(lambda: usage.from_metrics(json.loads(body)["items"]))
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        logger.debug("%s: usage cannot be read: %r", path, error)
        return {}
