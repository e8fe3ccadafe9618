"""What still runs of a job when following it ends: stopped or deleted, however long the server is away meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.rank0_log import Sink

T = TypeVar("T")

_AWAY = 2.0
"""Seconds between questions to a back-end that has given up answering, after tries of its own."""


async def delete(backend: Backend, ref: JobRef, sink: Sink) -> None:
    """Delete a job that would not end by itself, and say so."""
    await _answered(lambda: backend.delete(ref))
    sink.notice(f"{ref} was deleted: it would not have ended by itself")


async def stop(backend: Backend, ref: JobRef, sink: Sink) -> None:
    """Stop what still runs of a job that has ended, and say so; of some kinds nothing ever does."""
    change = kinds.named(ref.kind).STOP_RUNNING_PODS
    if change is None or await are_gone(backend, ref):
        return
    try:
        await _answered(lambda: backend.patch(ref, change))
    except ClusterError as error:
        sink.notice(f"{ref}: replicas that still run could not be stopped ({error}); delete the job")
        return
    sink.notice(f"{ref}: replicas that still ran after the job's end were stopped")


async def are_gone(backend: Backend, ref: JobRef) -> bool:
    """Whether nothing of the job runs any more."""
    return await _answered(lambda: backend.pods_gone(ref))


async def _answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer: a job that has ended is concluded however long the server is away."""
    while True:
        try:
            return await ask()
        except ClusterUnavailable as error:
            await asyncio.sleep(error.retry_after or _AWAY)
