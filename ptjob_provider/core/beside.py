"""What a job is watched for besides itself: a TensorBoard that had no node to be reached by when it was made."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ptjob_provider.core.backend import Backend, Observation
    from ptjob_provider.core.identity import JobRef


async def watched(backend: Backend, ref: JobRef, *, hands_off: bool) -> AsyncGenerator[Observation, None]:
    """Yield what `Backend.watch` does; once pods run, have the job's TensorBoard said by the address of a node.

    Args:
        backend: where the job is.
        ref: the job.
        hands_off: somebody else's job, which is only looked at.
    """
    asked: asyncio.Task[str] | None = None
    try:
        async with contextlib.aclosing(backend.watch(ref)) as watch:
            async for seen in watch:
                if asked is None and not hands_off and _can_be_placed(seen):
                    asked = asyncio.create_task(backend.ensure_tensorboard(ref))
                yield seen
    finally:
        if asked is not None:
            asked.cancel()
            await asyncio.wait({asked})


def _can_be_placed(seen: Observation) -> bool:
    plan = TensorBoardPlan.of(seen.job) if seen.job is not None else None
    if plan is None or not plan.is_provisional:
        return False
    return any((pod.get("status") or {}).get("phase") == "Running" for pod in seen.pods)
