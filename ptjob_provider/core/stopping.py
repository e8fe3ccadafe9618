"""Delete a job and wait until nothing of it runs any more, before another takes its place."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, JobNotFound
from ptjob_provider.core.identity import JobRef

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ptjob_provider.core.backend import Backend

STOP_TIMEOUT = 300.0
"""Seconds that a new attempt waits for the old one's pods; pods on a lost node never go, and a person must
intervene."""

_STOP_INTERVAL = 0.2
_QUIET = 3.0
"""Seconds without pods after which an object kept by a foreign finalizer also counts as stopped."""

_LONGEST_STOP_INTERVAL = 2.0
_LOOK_TIMEOUT = 5.0


async def stop_and_wait(
    backend: Backend,
    ref: JobRef,
    *,
    timeout: float = STOP_TIMEOUT,  # noqa: ASYNC109 - counted with the injected sleep
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Delete the job and return when nothing of it runs any more.

    Raises:
        ClusterUnavailable: its pods did not go within `timeout` seconds.
    """
    await backend.delete(ref)
    waited, quiet, pause = 0.0, 0.0, _STOP_INTERVAL
    while True:
        quiet = quiet + pause if await backend.pods_gone(ref) else 0.0
        if quiet and (quiet > _QUIET or await _is_removed(backend, ref)):
            return
        if waited >= timeout:
            raise ClusterUnavailable(
                f"{ref}: pods of this earlier attempt still run {timeout:.0f} s after it was deleted"
                f"{await _where(backend, ref)}; look for a lost node, then try again: a new attempt is not started "
                "beside them"
            )
        await sleep(pause)
        waited += pause
        pause = min(pause * 1.5, _LONGEST_STOP_INTERVAL)


async def _is_removed(backend: Backend, ref: JobRef) -> bool:
    """Return whether the object is gone, too: an operator slow to observe the deletion then creates no more pods."""
    try:
        return JobRef.of(await backend.get(ref.kind, ref.namespace, ref.name)) != ref
    except JobNotFound:
        return True


async def _where(backend: Backend, ref: JobRef) -> str:
    """Return the names of the remaining pods and their nodes, where the back-end has nodes."""
    try:
        async with asyncio.timeout(_LOOK_TIMEOUT), contextlib.aclosing(backend.watch(ref)) as watch:
            seen = await anext(watch)
    except (TimeoutError, ClusterError):
        return ""
    places = [(pod["metadata"]["name"], (pod.get("spec") or {}).get("nodeName")) for pod in seen.pods]
    named = [f"{name} on {node}" for name, node in places if node]
    return f" ({', '.join(named)})" if named else ""
