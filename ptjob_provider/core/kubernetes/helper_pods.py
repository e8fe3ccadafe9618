"""Run a helper pod that mounts a claim: create it, wait until it is usable, and delete it afterwards."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import (
    ClusterError,
    ClusterUnavailable,
    JobAlreadyExists,
    JobNotFound,
    NotThere,
    PermissionDenied,
    PTJobError,
)
from ptjob_provider.core.history.pods import read_pod, wait_of
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.informer.scope import by_name
from ptjob_provider.core.kubernetes.pods import has_ended
from ptjob_provider.core.kubernetes.probe import never_starts, problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client

logger = logging.getLogger(__name__)

_INTERVAL = 0.5
_QUIET = 5.0
"""Seconds for which a pod may wait before this is reported."""

_AFTERWARDS = 10.0
"""Maximum seconds, after the time limit, for reading why the pod does not run, and again for deleting it."""


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
) -> AsyncIterator[Manifest]:
    """Create the pod, and yield it once it is usable; the pod is deleted afterwards, even on cancellation.

    While the quota is full, the creation is repeated: other pods may still be terminating.

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

    async def until_usable() -> Manifest:
        pod: Manifest = {}
        began, told, full = time.monotonic(), "", ""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while full := await _created_or_full(client, manifest):  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(_INTERVAL)
                while not pod or not (has_ended(pod) or never_starts(pod)):
                    pod = await _existing(client, namespace, name)
                    if is_usable(pod):
                        return pod
                    wait = wait_of(read_pod(pod, ""), ())
                    reason = f"{wait.kind}/{wait.container}" if wait else told  # a failed pull and its back-off are one
                    if reason != told and time.monotonic() - began >= _QUIET:
                        told = reason
                        tell(f"the pod {namespace}/{name} {problem(pod)}")
                    await asyncio.sleep(_INTERVAL)
        if full:
            requests = manifest["spec"]["containers"][0]["resources"]["requests"]
            asks_for = "{cpu} CPU and {memory}".format_map(requests)
            raise ClusterError(f"{full}; free quota for a pod with {asks_for}, or raise it")
        raise ClusterError(f"the pod {namespace}/{name} {obstacle(pod, await _events_of(client, namespace, name))}")

    try:
        yield await until_usable()
    finally:
        await _delete(client, namespace, name)


async def _delete(client: Client, namespace: str, name: str) -> None:
    """Delete the pod if it exists; log it if that fails."""
    try:
        with suppress(JobNotFound, PermissionDenied):  # it was not created, as a rule
            async with asyncio.timeout(_AFTERWARDS):
                await client.delete(paths.pods(namespace, name))
    except (PTJobError, TimeoutError) as error:
        logger.warning("the pod %s/%s could not be deleted: %s", namespace, name, error)


async def _created_or_full(client: Client, manifest: Manifest) -> str:
    """Create the pod, and return ""; if the quota is full, return the server's message instead."""
    try:
        with suppress(JobAlreadyExists):  # an earlier try of this request has created it: the name is random
            await client.post(paths.pods(manifest["metadata"]["namespace"]), manifest)
    except ClusterUnavailable as error:
        if error.code != HTTPStatus.FORBIDDEN:
            raise
        return str(error)
    return ""


async def _existing(client: Client, namespace: str, name: str) -> Manifest:
    """Return the pod, unless it is gone or being deleted: then it ends, too."""
    with suppress(JobNotFound):
        pod = await client.get(paths.pods(namespace, name))
        if not pod["metadata"].get("deletionTimestamp"):
            return pod
    raise ClusterError(f"the pod {namespace}/{name} was deleted by somebody")


async def _events_of(client: Client, namespace: str, name: str) -> Sequence[Manifest]:
    """Return a pod's events, which report volumes that cannot be mounted; none if the events cannot be read."""
    with suppress(PTJobError, TimeoutError):
        async with asyncio.timeout(_AFTERWARDS):
            return await client.items(paths.events(namespace), fieldSelector=by_name("Pod", name))
    return ()
