"""Detects that this process was suspended for so long that another may have replaced it, as with a frozen triggerer."""

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
"""Seconds without a beat after which another triggerer may have taken over, and been suspended itself."""


class Pulse:
    """Beats between `start` and `stop`, and counts the gaps.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beaten_at = clock()
        self._standstills = 0
        self._timer: asyncio.TimerHandle | None = None

    def standstills(self) -> int:
        """Return how often this process was suspended, including a gap that has just ended."""
        now = self._clock()
        if self._timer is not None and now - self._beaten_at >= STANDSTILL:
            self._standstills += 1
        self._beaten_at = now
        return self._standstills

    def start(self) -> None:
        """Start beating, by a timer that waits for nothing else, so that only a blocked loop can stop it."""
        self.standstills()
        self._timer = asyncio.get_running_loop().call_later(BEAT, self.start, context=contextvars.Context())

    def stop(self) -> None:
        """Stop beating: there is no trigger left that another process could take over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
