"""How long a reader of a log waits before it asks again: longer from failure to failure, and not all at once."""

from __future__ import annotations

import asyncio
import random

_LONGEST_PAUSE = 30.0
"""Seconds between tries to read from a server that does not answer."""


class Patience:
    """Failures in a row.

    Attributes:
        failures: how many since a line was read.
    """

    def __init__(self) -> None:
        self.failures = 0

    def fails(self) -> None:
        """Wait longer from now on."""
        self.failures += 1

    def succeeds(self) -> None:
        """Wait no longer."""
        self.failures = 0

    async def pause(self) -> None:
        """Wait before the server is asked again."""
        if self.failures:
            await asyncio.sleep(min(2.0 ** (self.failures - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, keeps no secret
