"""Whether this process stood still for so long that another may have taken its place, as with a frozen triggerer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

BEAT = 2.0
"""Seconds between two beats."""

STANDSTILL = 8.0
"""Seconds without a beat after which another triggerer may have taken over, and done the same."""


class Pulse:
    """Beats as long as somebody is in `beating()`, and counts the times that it could not.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beaten_at = clock()
        self._standstills = 0

    def standstills(self) -> int:
        """Return how often this process stood still; one that just ended is counted, whoever notices it first."""
        now = self._clock()
        if now - self._beaten_at >= STANDSTILL:
            self._standstills += 1
        self._beaten_at = now
        return self._standstills

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Beat meanwhile. Nothing else is awaited between two beats, so that only the whole loop can stop them."""
        beats = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beats.cancel()

    async def _beat(self) -> None:
        while True:
            self.standstills()
            await asyncio.sleep(BEAT)
