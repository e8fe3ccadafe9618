"""Back-off of a log reader: exponential, with jitter."""

from __future__ import annotations

import asyncio
import random

_LONGEST_PAUSE = 30.0
"""Maximum seconds between tries to read from an unresponsive server."""


class Patience:
    """Consecutive failures.

    Attributes:
        failures: number since a line was read.
    """

    def __init__(self) -> None:
        self.failures = 0

    def fails(self) -> None:
        """Increase the delay."""
        self.failures += 1

    def succeeds(self) -> None:
        """Reset the delay."""
        self.failures = 0

    async def pause(self) -> None:
        """Wait before the next try."""
        if self.failures:
            await asyncio.sleep(min(2.0 ** (self.failures - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, keeps no secret
