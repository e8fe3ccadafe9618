"""Who may read a log when: so many streams may be open at once, and whoever has none takes turns at reading.

One `LogStreams` belongs to one client, and so to one event loop and one cluster. A stream costs the API server and the
kubelet a connection each for as long as a job runs; a turn costs a request and then nothing. All turns together make at
most two requests a second, whoever waits: a job's turn comes every ten seconds while there are twenty jobs without a
stream, and every `jobs / 2` seconds when there are more.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_INTERVAL = 10.0
"""Seconds between two turns of one job at least."""

_SPACING = 0.5
"""Seconds between the beginnings of two turns, whosever they are."""

_AT_ONCE = 4
"""How many turns may be under way at once: a node that answers slowly holds up no more."""


class LogStreams:
    """The streams of one client: who has one, who waits for one, and whose turn it is meanwhile."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: dict[Place, None] = {}
        self._reading = asyncio.Semaphore(_AT_ONCE)
        self._next_start = 0.0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Place]:
        """Queue for a stream; the place is given up at the end, and a stream goes to whoever has waited longest."""
        place = Place(self)
        self._waiting[place] = None
        self._hand_out()
        try:
            yield place
        finally:
            self._waiting.pop(place, None)
            self._free += place.has_stream
            self._hand_out()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Hold one of the few places for short reads; nobody may be waited for inside."""
        async with self._reading:
            yield

    def next_start(self) -> float:
        """Return when, by the loop's clock, the next turn may begin; it is the caller's."""
        start = max(asyncio.get_running_loop().time(), self._next_start)
        self._next_start = start + _SPACING
        return start

    def _hand_out(self) -> None:
        while self._free and self._waiting:
            first = next(iter(self._waiting))
            del self._waiting[first]
            self._free -= 1
            first.give_stream()


class Place:
    """One reader's place in the queue."""

    def __init__(self, streams: LogStreams) -> None:
        self._streams = streams
        self._stream = asyncio.Event()
        self._turn_at = 0.0

    @property
    def has_stream(self) -> bool:
        """Whether it may keep a stream open."""
        return self._stream.is_set()

    def give_stream(self) -> None:
        """Let it keep a stream open from now on."""
        self._stream.set()

    async def turn(self, *, is_behind: bool = False) -> None:
        """Return as soon as it has a stream, or else when its turn to read has come: first come, first served.

        Args:
            is_behind: there is more to read already: it queues again at once.
        """
        if not is_behind:
            await self._stream_by(self._turn_at)
        if not self.has_stream:
            await self._stream_by(self._streams.next_start())
        self._turn_at = asyncio.get_running_loop().time() + _INTERVAL

    async def _stream_by(self, instant: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(instant):
                await self._stream.wait()
