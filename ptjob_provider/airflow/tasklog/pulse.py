"""Whether this process stood still for so long that another may have taken its place, as with a frozen triggerer."""

from __future__ import annotations

import asyncio
import contextvars
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BEAT = 2.0
"""Seconds between two beats."""

STANDSTILL = 8.0
"""Seconds without a beat after which another triggerer may have taken over, and done the same."""


class Pulse:
    """Beats between `start` and `stop`, and counts the times that it could not.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beaten_at = clock()
        self._standstills = 0
        self._timer: asyncio.TimerHandle | None = None

    def standstills(self) -> int:
        """Return how often this process stood still; one that just ended is counted, whoever notices it first."""
        now = self._clock()
        if self._timer is not None and now - self._beaten_at >= STANDSTILL:
            self._standstills += 1
        self._beaten_at = now
        return self._standstills

    def start(self) -> None:
        """Beat from now on, by a timer that waits for nothing else, so that only the whole loop can stop it."""
        self.standstills()
        self._timer = asyncio.get_running_loop().call_later(BEAT, self.start, context=contextvars.Context())

    def stop(self) -> None:
        """Beat no more: nobody has anything that another could take over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
