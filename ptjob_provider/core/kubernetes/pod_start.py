"""Waiting for a pod that was started for somebody who looks, and telling why it is of no use to him."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError, PTJobError
from ptjob_provider.core.kubernetes import paths
from ptjob_provider.core.kubernetes.board import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client import Client

_INTERVAL = 0.5


async def until(
    client: Client,
    namespace: str,
    name: str,
    is_of_use: Callable[[Manifest], bool],
    *,
    seconds: float,
    obstacle: Callable[[Manifest, Sequence[Manifest]], str],
) -> None:
    """Return once the pod is of use.

    Args:
        client: of its cluster.
        namespace: of the pod.
        name: of the pod.
        is_of_use: whether it is.
        seconds: how long that is waited for.
        obstacle: says of the pod, empty if it was never seen, and of its events why it is not, as a clause about it.

    Raises:
        ClusterError: it has ended, or the time is over; the text says why.
    """
    pod: Manifest = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not pod or pod["status"].get("phase") not in ENDED:
                pod = await client.get(paths.pods(namespace, name))
                if is_of_use(pod):
                    return
                await asyncio.sleep(_INTERVAL)
    events: Sequence[Manifest] = []
    with suppress(PTJobError):
        events = await client.items(paths.events(namespace), fieldSelector=f"involvedObject.name={name}")
    raise ClusterError(f"the pod {namespace}/{name} {obstacle(pod, events)}")
