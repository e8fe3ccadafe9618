"""Run a helper pod that mounts a claim: create it, wait until it is usable, and delete it afterwards."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError, JobAlreadyExists, JobNotFound, NotThere, PTJobError
from ptjob_provider.core.history.pods import read_pod, wait_of
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.informer.scope import by_name
from ptjob_provider.core.kubernetes.pods import has_ended
from ptjob_provider.core.kubernetes.probe import never_starts, problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client

_INTERVAL = 0.5
_QUIET = 5.0
"""Seconds for which a pod may wait before this is reported."""

_EVENTS_TIMEOUT = 10.0
"""Maximum seconds, after the time limit, for reading why the pod does not run."""


async def existing_claim(client: Client, namespace: str, name: str) -> Manifest:
    """Return the claim.

    Raises:
        NotThere: the claim does not exist.
    """
    try:
        return await client.get(paths.claims(namespace, name))
    except JobNotFound:
        raise NotThere.claim(name, namespace) from None


@asynccontextmanager
async def running(
    client: Client,
    manifest: Manifest,
    is_usable: Callable[[Manifest], bool],
    *,
    seconds: float,
    obstacle: Callable[[Manifest, Sequence[Manifest]], str],
    tell: Callable[[str], None],
) -> AsyncIterator[None]:
    """Create the pod, and yield once it is usable; the pod is deleted afterwards.

    Args:
        client: client of the pod's cluster.
        manifest: the pod.
        is_usable: returns whether the pod is usable.
        seconds: time limit.
        obstacle: returns, as a clause, why the pod is not usable. Gets the pod, empty if it was never read, and its
            events.
        tell: called with the reason, and again for each new reason, if the pod waits for more than a few seconds.

    Raises:
        ClusterError: the pod has ended, can never start, or was not usable in time; the text says why.
    """
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]

    async def until_usable() -> None:
        pod: Manifest = {}
        began, told = time.monotonic(), ""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not pod or not (has_ended(pod) or never_starts(pod)):
                    pod = await client.get(paths.pods(namespace, name))
                    if is_usable(pod):
                        return
                    wait = wait_of(read_pod(pod, ""), ())
                    reason = f"{wait.kind}/{wait.container}" if wait else told  # a failed pull and its back-off are one
                    if reason != told and time.monotonic() - began >= _QUIET:
                        told = reason
                        tell(f"the pod {namespace}/{name} {problem(pod)}")
                    await asyncio.sleep(_INTERVAL)
        raise ClusterError(f"the pod {namespace}/{name} {obstacle(pod, await events_of(client, namespace, name))}")

    try:
        with suppress(JobAlreadyExists):  # an earlier try of this request has created it: the name is random
            await client.post(paths.pods(namespace), manifest)
        await until_usable()
        yield
    finally:
        with suppress(PTJobError):
            await client.delete(paths.pods(namespace, name))


async def events_of(client: Client, namespace: str, name: str) -> Sequence[Manifest]:
    """Return a pod's events, which report volumes that cannot be mounted; none if the events cannot be read."""
    with suppress(PTJobError, TimeoutError):
        async with asyncio.timeout(_EVENTS_TIMEOUT):
            return await client.items(paths.events(namespace), fieldSelector=by_name("Pod", name))
    return ()
