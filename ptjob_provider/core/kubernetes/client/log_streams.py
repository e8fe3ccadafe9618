"""Limit the concurrent log streams: some readers have a stream, the others read in turns, by one request per turn.

One `LogStreams` belongs to one client, and so to one event loop and one cluster. A stream costs the API server and the
kubelet a connection each for as long as a job runs. All turns together make at most two requests a second: each reader
without a stream reads every ten seconds if there are at most twenty of them, else every `readers / 2` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_INTERVAL = 10.0
"""Minimum seconds between two turns of one reader."""

_SPACING = 0.5
"""Seconds between the starts of any two turns."""

_AT_ONCE = 4
"""Maximum number of concurrent short reads, which limits the effect of slow nodes."""


class LogStreams:
    """Streams of one client, the queue of readers for them, and the schedule of turns for the queued readers."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: dict[StreamSlot, None] = {}
        self._reading = asyncio.Semaphore(_AT_ONCE)
        self._next_start = 0.0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[StreamSlot]:
        """Join the queue for a stream; on exit, release the stream to the reader that has waited longest."""
        slot = StreamSlot(self)
        self._waiting[slot] = None
        self._hand_out()
        try:
            yield slot
        finally:
            self._waiting.pop(slot, None)
            self._free += slot.has_stream
            self._hand_out()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Limit concurrent short reads. Inside, wait only for the read itself: others need the permit."""
        async with self._reading:
            yield

    def next_start(self) -> float:
        """Reserve the next turn, and return its start time by the event loop's clock."""
        start = max(asyncio.get_running_loop().time(), self._next_start)
        self._next_start = start + _SPACING
        return start

    def _hand_out(self) -> None:
        while self._free and self._waiting:
            first = next(iter(self._waiting))
            del self._waiting[first]
            self._free -= 1
            first.give_stream()


class StreamSlot:
    """Slot of one reader in the queue for streams."""

    def __init__(self, streams: LogStreams) -> None:
        self._streams = streams
        self._stream = asyncio.Event()
        self._turn_at = 0.0

    @property
    def has_stream(self) -> bool:
        """Return whether the reader may keep a stream open."""
        return self._stream.is_set()

    def give_stream(self) -> None:
        """Give the reader a stream, which it keeps until it leaves the slot."""
        self._stream.set()

    async def turn(self, *, is_behind: bool = False) -> None:
        """Wait until the reader has a stream or its turn begins; turns are given in order of arrival.

        Args:
            is_behind: more lines exist already, so that the reader need not pause before its next turn.
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
