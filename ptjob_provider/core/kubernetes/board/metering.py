"""What the replicas of followed jobs use, looked at seldom: two requests a round at most, for all of them together.

Kubelets say everything, but take a right in the whole cluster; the metrics API says CPU and memory, and is asked in the
same look where a kubelet says nothing. Where neither may be asked, that is found out once, and nothing is asked any
more. Which of them is asked, `usage.asked_in` decides.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError, PTJobError
from ptjob_provider.core.hub import Mailbox
from ptjob_provider.core.kubernetes import paths, usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
    from typing import Any

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.board.world import World
    from ptjob_provider.core.kubernetes.client import Client

logger = logging.getLogger(__name__)

_FIRST = 15.0
"""Seconds that a replica runs before the first look: whoever measures has not seen it earlier."""

_SILENCE = 30.0
_AT_ONCE = 100
_FINAL = {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.UNAUTHORIZED}


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
        self._kubelets = self._metrics = True
        self._number = 0

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
        """Look, as long as something runs and anybody tells."""
        while self._interval and (self._kubelets or self._metrics):
            await self._box.until(lambda: bool(self._running))
            await asyncio.sleep(min(_FIRST, self._interval))
            while self._running and (self._kubelets or self._metrics):
                await self._look(client)
                await asyncio.sleep(self._interval)

    async def _look(self, client: Client) -> None:
        running = [each async for each in self._pods()]
        nodes = sorted({pod["spec"]["nodeName"] for _, pod in running if pod["spec"].get("nodeName")})
        asked, metrics = usage.asked_in(self._number, nodes, kubelets=self._kubelets, metrics=self._metrics)
        self._number += 1
        found = await self._of_metrics(client) if metrics else {}
        for count, node in enumerate(asked, start=1):
            told = await self._of_kubelet(client, node)
            found |= told or {}
            if told is None and self._metrics and not metrics and count < usage.REQUESTS:
                found |= await self._of_metrics(client)
                break
            if not self._kubelets:
                break
        for number, (world, pod) in enumerate(running):
            figures = usage.figures_of(pod, found)
            if figures is not None:
                world.show_measured(pod, figures)
            await _give_way(number)

    async def _pods(self) -> AsyncGenerator[tuple[World, Manifest], None]:
        for number, world in enumerate(list(self._running.values())):
            for pod in world.running:
                yield world, pod
            await _give_way(number)

    async def _of_metrics(self, client: Client) -> usage.Measured:
        try:
            return await _told(
                client, paths.pod_metrics(self._namespace), "items", usage.from_metrics, **self._of_pods()
            )
        except PTJobError as error:
            self._metrics = not self._is_final("the metrics API", error)
            return {}

    async def _of_kubelet(self, client: Client, node: str) -> usage.Measured | None:
        """Return what it says; None if it does not answer, or may not be asked."""
        try:
            return await _told(client, paths.kubelet_summary(node), "pods", usage.from_summary)
        except PTJobError as error:
            is_gone = isinstance(error, ClusterError) and error.code == HTTPStatus.NOT_FOUND
            self._kubelets = is_gone or not self._is_final("kubelets", error)
            return None

    def _is_final(self, who: str, error: PTJobError) -> bool:
        if not isinstance(error, ClusterError) or error.code not in _FINAL:
            return False  # it is asked in the next round again
        logger.debug("%s: %s will not tell what replicas use: %s", self._namespace or "all namespaces", who, error)
        return True


async def _told(
    client: Client,
    path: str,
    field: str,
    read: Callable[[Iterable[dict[str, Any]]], usage.Measured],
    **query: str,
) -> usage.Measured:
    """Ask once, and read the answer while it comes: ten thousand pods are five megabytes.

    One that cannot be read tells nothing more, and ends nothing: figures are not worth a board.
    """
    found: usage.Measured = {}
    reader = usage.ListReader(field)
    async with client.stream(path, silence=_SILENCE, **query) as chunks:
        async for chunk in chunks:
            try:
                found |= read(reader.feed(chunk))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                logger.debug("%s: what replicas use cannot be read: %r", path, error)
                break
    return found


async def _give_way(number: int) -> None:
    """Leave the loop to others now and then."""
    if not number % _AT_ONCE:
        await asyncio.sleep(0)
