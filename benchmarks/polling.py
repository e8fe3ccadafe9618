"""Waits for conditions by polling."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def until(what: str, holds: Callable[[], Awaitable[bool]], *, patience: float, every: float = 0.5) -> None:
    """Return once the condition holds.

    Raises:
        TimeoutError: it did not hold in time; the message names it.
    """
    deadline = asyncio.get_running_loop().time() + patience
    while not await holds():
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"waited {patience:.0f} s for {what}")
        await asyncio.sleep(every)
