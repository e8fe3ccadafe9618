"""Stop or delete what still runs when following a job ends, and retry for as long as the server is unavailable."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import PTJobError

if TYPE_CHECKING:
    from ptjob_provider.core.api_errors import ApiErrors
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.rank0_log import Sink

SETTLE_TIMEOUT = 3.0
"""Seconds to wait for the replicas of an ended job to end by themselves: stopping them removes their logs, and one of
them may hold the first cause of a failure."""

_SETTLE_INTERVAL = 0.2


async def delete(backend: Backend, ref: JobRef, sink: Sink, errors: ApiErrors) -> None:
    """Delete a job that would not end by itself, and log it."""
    await errors.answer(lambda: backend.delete(ref))
    sink.notice(f"{ref} was deleted: it would not have ended by itself; nothing of it is kept but what is told here")


def leave(ref: JobRef, sink: Sink) -> None:
    """Log that a stuck job is left in place, and how to inspect and delete it."""
    sink.notice(f"{ref} is still there: ptjob get {ref.name}; delete it: ptjob delete {ref.name}")


async def stop(backend: Backend, ref: JobRef, sink: Sink, errors: ApiErrors) -> None:
    """Stop the replicas that outlive an ended job, and log it; some kinds leave none."""
    change = kinds.named(ref.kind).STOP_RUNNING_PODS
    if change is None or await settled(backend, ref, errors):
        return
    try:
        await errors.answer(lambda: backend.patch(ref, change))
    except PTJobError as error:
        sink.notice(f"{ref}: replicas that still run could not be stopped ({error}); delete the job")
        return
    sink.notice(f"{ref}: replicas that still ran after the job's end are being stopped")


async def settled(backend: Backend, ref: JobRef, errors: ApiErrors) -> bool:
    """Wait a moment until nothing of an ended job runs any more, and return whether that is so."""
    waited = 0.0
    while not await errors.answer(lambda: backend.pods_gone(ref)):
        if waited >= SETTLE_TIMEOUT:
            return False
        await asyncio.sleep(_SETTLE_INTERVAL)
        waited += _SETTLE_INTERVAL
    return True
