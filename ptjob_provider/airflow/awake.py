"""Waiting by the time in which this process runs: a machine that is frozen for seconds has done nothing meanwhile."""

from __future__ import annotations

import asyncio
import math
from typing import Any

STEP = 0.25
"""Seconds of a piece of waiting; each counts as so many, however long it took."""


async def within(patience: float, answer: asyncio.Future[Any]) -> Any:
    """Return the answer; without one in time it is cancelled.

    Raises:
        TimeoutError: it did not come in so many seconds.
    """
    try:
        for _ in range(math.ceil(patience / STEP)):
            if (await asyncio.wait({answer}, timeout=STEP))[0]:
                return answer.result()
    finally:
        answer.cancel()
    raise TimeoutError


async def pause(seconds: float) -> None:
    """Wait so long; not at all if it is not above 0."""
    while seconds > 0:
        await asyncio.sleep(min(STEP, seconds))
        seconds -= STEP
