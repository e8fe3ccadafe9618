"""Sample what the replicas of followed jobs use: one request to the metrics API a round, for all of them together."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.hub import Mailbox
from ptjob_provider.core.kubernetes import paths, usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ptjob_provider.core.kubernetes.board.world import World
    from ptjob_provider.core.kubernetes.client import Client

logger = logging.getLogger(__name__)

_FIRST = 30.0
"""Seconds that a replica runs before the first look: a metrics server measures every 15, and reports a while later."""

_SILENCE = 30.0
_AT_ONCE = 100


class Metering:
    """Looks at the jobs of one board that `look_at` has found to run.

    Args:
        namespace: of the board; "" for all.
        interval: seconds between two looks; 0: nobody looks.
        of_pods: returns the query that selects the pods of its jobs.
    """

    def __init__(self, namespace: str, interval: float, of_pods: Callable[[], Mapping[str, str]]) -> None:
        self._namespace = namespace
        self._interval = interval
        self._of_pods = of_pods
        self._running: dict[str, World] = {}
        self._box = Mailbox()

    def look_at(self, world: World) -> None:
        """See whether anything of the job runs."""
        if not world.running:
            self.drop(world)
        elif world.ref.uid not in self._running:
            self._running[world.ref.uid] = world
            self._box.ring()

    def drop(self, world: World) -> None:
        """Nobody follows the job any more, or nothing of it runs."""
        self._running.pop(world.ref.uid, None)

    async def run(self, client: Client) -> None:
        """Look, as long as something runs."""
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
                await asyncio.sleep(0)  # others get their turn


async def measured(client: Client, namespace: str, query: Mapping[str, str]) -> usage.Measured:
    """Ask the metrics API once, and read the answer while it comes: ten thousand pods are five megabytes.

    An answer that cannot be read ends there, and nothing else ends: figures are not worth a board.

    Args:
        client: of the cluster.
        namespace: of the pods; "" for all.
        query: selects the pods.

    Raises:
        PTJobError: there is no answer.
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
