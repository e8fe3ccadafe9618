"""Limits the log records per second of all jobs of an event loop together, in turns.

A triggerer runs thousands of jobs on one loop, and every record passes through Airflow's logger on that loop and
through the one thread that also manages the triggerer's database rows. Above the limit, a job's lines wait for its turn
and are joined in one record: no line is dropped, and no job waits for more than one record of each other job.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ptjob_provider.airflow.config import max_log_records_per_second
from ptjob_provider.airflow.tasklog.channel import Channel
from ptjob_provider.core.loops import OnePerLoop

if TYPE_CHECKING:
    from collections.abc import Callable

BURST = 0.05
"""Seconds of the limit that may be written at once: Airflow's logger blocks the loop meanwhile."""

STEP = 0.02
"""Seconds between two rounds of turns while a writer waits."""

LOOK = 0.005
"""Seconds between two checks whether what was written has left; a job's event waits for that."""

LONGEST_STEP = 0.01
"""Maximum seconds of one round."""

READERS = 16
"""Number of logs whose readers continue in one pass of the event loop, each by a few lines."""


class Writer(Protocol):
    """A job's pending lines."""

    def write_record(self) -> bool:
        """Write one record, and return whether more is waiting."""


class Ceiling:
    """Shares out the records of an event loop.

    Args:
        per_second: how many.
        channel: the sockets that carry records out of this process; nothing is written while they have no room.
        clock: monotonic seconds.

    Attributes:
        held: bytes, about, that wait with all writers; the writers count them.
    """

    def __init__(self, per_second: float, channel: Channel, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(1.0, per_second * BURST)
        self._channel = channel
        self._clock = clock
        self.held = 0
        self._left = self._burst
        self._counted_at = clock()
        self._turns: deque[Writer] = deque()
        self._leaving: list[asyncio.Future[None]] = []
        self._readers: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> bool:
        """Take one record at once, if the limit allows it and no writer waits for a turn."""
        return not self._turns and not self._leaving and self._may_write()

    def queue(self, writer: Writer) -> None:
        """Give the writer turns until it has nothing to write; a no-op for a writer already in the queue."""
        self._turns.append(writer)
        self._wake()

    async def next_lines(self) -> None:
        """Return when one more reader with lines at hand may continue: all at once would block the loop."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._readers.append(turn)
        if len(self._readers) == 1:
            loop.call_soon(self._let_readers_go_on)
        await turn

    async def left(self, patience: float, *, while_it_moves: bool = False) -> bool:
        """Wait until what was written has left this process, and return whether it has.

        Airflow drops records in transit when a trigger's event arrives: of 10,000 lines written just before it, 49 went
        to the triggerer's own log (3.3.2). Turns pause meanwhile, else the wait might never end.

        Args:
            patience: timeout in seconds.
            while_it_moves: apply the timeout only while nothing leaves. A triggerer reads 4 KB between two database
                queries, and a slow one takes more than seconds for the content of a socket.
        """
        if self._channel.is_empty():
            return True
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaving.append(answer)
        self._wake()
        least = self._channel.unsent()
        try:
            while not (await asyncio.wait({answer}, timeout=patience))[0]:
                before, least = least, min(least, self._channel.unsent())
                if not while_it_moves or least == before:
                    return False
        finally:
            if answer in self._leaving:
                self._leaving.remove(answer)
        return True

    def _let_readers_go_on(self) -> None:
        for _ in range(min(READERS, len(self._readers))):
            turn = self._readers.popleft()
            if not turn.done():
                turn.set_result(None)
        if self._readers:
            asyncio.get_running_loop().call_soon(self._let_readers_go_on)

    def _wake(self) -> None:
        if self._timer is None:  # in a context of its own: it works for all jobs, not for the first one
            loop = asyncio.get_running_loop()
            pause = LOOK if self._leaving else STEP
            self._timer = loop.call_later(pause, self._step, context=contextvars.Context())

    def _step(self) -> None:
        self._timer = None
        try:
            if self._leaving and self._channel.is_empty():
                self._let_go()
            if not self._leaving:
                self._give_turns()
        finally:  # a logger that fails for one job must not affect the others
            if self._turns or self._leaving:
                self._wake()

    def _let_go(self) -> None:
        for answer in self._leaving:
            if not answer.done():
                answer.set_result(None)
        self._leaving.clear()

    def _give_turns(self) -> None:
        until = self._clock() + LONGEST_STEP
        while self._turns and self._clock() < until and self._may_write():
            writer = self._turns.popleft()
            if writer.write_record():
                self._turns.append(writer)

    def _may_write(self) -> bool:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._counted_at) * self._per_second)
        self._counted_at = now
        if self._left < 1.0 or not self._channel.has_room():
            return False
        self._left -= 1.0
        return True


def _configured() -> Ceiling:
    return Ceiling(max_log_records_per_second(), Channel())


ceilings = OnePerLoop(_configured)
"""One limit per event loop, read from `[ptjob] max_log_records_per_second` when the loop writes its first record."""
