"""Wait for an auxiliary pod to become ready, and explain why it does not."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError, PTJobError
from ptjob_provider.core.kubernetes import paths
from ptjob_provider.core.kubernetes.board import ENDED
from ptjob_provider.core.kubernetes.probe_answer import never_starts, seen
from ptjob_provider.core.recorder.pods import read_pod, wait_of
from ptjob_provider.core.site import ignore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client import Client

_INTERVAL = 0.5
_PATIENCE = 5.0
"""Seconds that a pod may take to start without a message."""


class _Waiting:
    """Reports a pod's wait: once it lasts longer than a moment, and again when it changes."""

    def __init__(self, who: str, tell: Callable[[str], None]) -> None:
        self._who = who
        self._tell = tell
        self._since = time.monotonic()
        self._told = ""

    def see(self, pod: Manifest) -> None:
        """Set the pod's current state; the kubelet's failed pull and its back-off count as one reason."""
        wait = wait_of(read_pod(pod, ""), ())
        reason = f"{wait.kind}/{wait.container}" if wait else ""
        if not wait or reason == self._told or time.monotonic() - self._since < _PATIENCE:
            return
        self._told = reason
        self._tell(f"{self._who} {seen(pod)}")


async def until(
    client: Client,
    namespace: str,
    name: str,
    is_of_use: Callable[[Manifest], bool],
    *,
    seconds: float,
    obstacle: Callable[[Manifest, Sequence[Manifest]], str],
    tell: Callable[[str], None] = ignore,
) -> None:
    """Wait until the pod is usable.

    Args:
        client: of its cluster.
        namespace: of the pod.
        name: of the pod.
        is_of_use: returns whether it is usable.
        seconds: time limit.
        obstacle: returns a clause on why it is not usable from the pod, empty if never observed, and its events.
        tell: called with the reason for waiting, if it takes longer than a moment.

    Raises:
        ClusterError: it has ended or can never start, or the time is over; the text says why.
    """
    pod: Manifest = {}
    waiting = _Waiting(f"the pod {namespace}/{name}", tell)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not pod or not (pod["status"].get("phase") in ENDED or never_starts(pod)):
                pod = await client.get(paths.pods(namespace, name))
                if is_of_use(pod):
                    return
                waiting.see(pod)
                await asyncio.sleep(_INTERVAL)
    events: Sequence[Manifest] = []
    with suppress(PTJobError):
        events = await client.items(paths.events(namespace), fieldSelector=f"involvedObject.name={name}")
    raise ClusterError(f"the pod {namespace}/{name} {obstacle(pod, events)}")
