"""Limit the log records per second of all jobs of an event loop together, so that no write to a socket blocks.

Tasks and triggers send their log records through sockets to Airflow's supervisor. A triggerer's supervisor reads 4 KB
between two database queries (3.3.2), and a write to a full socket blocks the event loop of all triggers until then.

A triggerer runs thousands of jobs on one loop, and every record passes through Airflow's logger on that loop and
through the one thread that also manages the triggerer's database rows. Above the limit, a job's lines wait for its turn
and are joined in one record: no line is dropped, and no job waits for more than one record of each other job.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import contextvars
import fcntl
import os
import socket
import stat
import struct
import termios
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ptjob_provider.airflow.config import max_log_records_per_second
from ptjob_provider.core.shared import OnePerLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STUCK = 30.0
"""Seconds after which a socket without a reader no longer blocks writers."""

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


@dataclass(frozen=True, kw_only=True, slots=True)
class _Socket:
    """A socket: its descriptor, which may be reused, its inode, which is not, and its buffer size."""

    descriptor: int
    inode: int
    size: int

    def unsent(self) -> int:
        """Return the unread bytes, counted by the kernel against `size`."""
        held = array.array("i", [0])
        with contextlib.suppress(OSError):
            if os.fstat(self.descriptor).st_ino == self.inode:
                fcntl.ioctl(self.descriptor, termios.TIOCOUTQ, held)
        return held[0]


class SupervisorSockets:
    """The sockets between this process and its supervisor at creation time.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sockets = tuple(_to_supervisor())
        self._full_since: dict[_Socket, tuple[int, float]] = {}

    def has_room(self) -> bool:
        """Return whether a record can be written without blocking: each socket is at most half full."""
        return all(self._is_open(each) for each in self._sockets)

    def is_empty(self) -> bool:
        """Return whether the supervisor has read everything."""
        return not self.unsent()

    def unsent(self) -> int:
        """Return the number of written bytes that the supervisor has not read, as the kernel counts them."""
        return sum(each.unsent() for each in self._sockets)

    def _is_open(self, each: _Socket) -> bool:
        unsent = each.unsent()
        if 2 * unsent <= each.size:
            self._full_since.pop(each, None)
            return True
        before, since = self._full_since.get(each, (-1, 0.0))
        if unsent != before:
            self._full_since[each] = (unsent, self._clock())
            return False
        return self._clock() - since > STUCK


def _to_supervisor() -> Iterator[_Socket]:
    """Yield the sockets that this process's parent created; all local ones if it created none, as under `sudo`."""
    sockets = list(_local_sockets())
    made_by_parent = [each for maker, each in sockets if maker == os.getppid()]
    yield from made_by_parent or (each for _, each in sockets)


def _local_sockets() -> Iterator[tuple[int, _Socket]]:
    """Yield each connected AF_UNIX stream socket of this process, with the process that created it."""
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        with contextlib.suppress(OSError):
            status = os.fstat(descriptor)
            if stat.S_ISSOCK(status.st_mode):
                yield from _local_socket(descriptor, status.st_ino)


def _local_socket(descriptor: int, inode: int) -> Iterator[tuple[int, _Socket]]:
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        if (copy.family, copy.type) == (socket.AF_UNIX, socket.SOCK_STREAM):
            credentials = copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            size = copy.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            yield _CREDENTIALS.unpack(credentials)[0], _Socket(descriptor=descriptor, inode=inode, size=size)


BURST = 0.05
"""Maximum burst, in seconds of the limit: Airflow's logger blocks the loop while it writes."""

STEP = 0.02
"""Seconds between two rounds of turns while a writer waits."""

DRAIN_INTERVAL = 0.005
"""Seconds between two checks whether the supervisor has read everything; a trigger's event waits for that."""

LONGEST_STEP = 0.01
"""Maximum seconds of one round."""

READERS = 16
"""Number of logs whose readers continue in one pass of the event loop, each by a few lines."""


class Writer(Protocol):
    """A job's pending lines."""

    def write_record(self) -> bool:
        """Write one record, and return whether more is waiting."""


class RateLimiter:
    """Limits the log records per second of an event loop, and gives its writers turns.

    Args:
        per_second: maximum records per second.
        sockets: the sockets that carry records out of this process; nothing is written while they have no room.
        clock: monotonic seconds.

    Attributes:
        held: approximate bytes of the pending lines of all writers; the writers update it.
    """

    def __init__(
        self, per_second: float, sockets: SupervisorSockets, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = max(1.0, per_second * BURST)
        self._sockets = sockets
        self._clock = clock
        self.held = 0
        self._budget = self._burst
        self._counted_at = clock()
        self._turns: deque[Writer] = deque()
        self._draining: list[asyncio.Future[None]] = []
        self._readers: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> bool:
        """Take one record at once, if the limit allows it and no writer waits for a turn."""
        return not self._turns and not self._draining and self._may_write()

    def queue(self, writer: Writer) -> None:
        """Give the writer turns until it has nothing to write; a no-op for a writer already in the queue."""
        self._turns.append(writer)
        self._wake()

    async def next_lines(self) -> None:
        """Wait for the turn of a reader that has lines: all readers at once would block the loop."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._readers.append(turn)
        if len(self._readers) == 1:
            loop.call_soon(self._wake_readers)
        await turn

    async def drain(self, patience: float, *, while_it_moves: bool = False) -> bool:
        """Wait until the supervisor has read everything, and return whether it has.

        Airflow drops records in transit when a trigger's event arrives: of 10,000 lines written just before it, 49 went
        to the triggerer's own log (3.3.2). No writer has a turn meanwhile, else the wait might never end.

        Args:
            patience: timeout in seconds.
            while_it_moves: restart the timeout whenever something was read. A triggerer reads 4 KB between two
                database queries, and a slow one needs many seconds to read all that a socket holds.
        """
        if self._sockets.is_empty():
            return True
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._draining.append(drained)
        self._wake()
        least = self._sockets.unsent()
        try:
            while not (await asyncio.wait({drained}, timeout=patience))[0]:
                before, least = least, min(least, self._sockets.unsent())
                if not while_it_moves or least == before:
                    return False
        finally:
            if drained in self._draining:
                self._draining.remove(drained)
        return True

    def _wake_readers(self) -> None:
        for _ in range(min(READERS, len(self._readers))):
            turn = self._readers.popleft()
            if not turn.done():
                turn.set_result(None)
        if self._readers:
            asyncio.get_running_loop().call_soon(self._wake_readers)

    def _wake(self) -> None:
        if self._timer is None:  # an empty context: the timer serves all jobs, not only the one that starts it
            loop = asyncio.get_running_loop()
            pause = DRAIN_INTERVAL if self._draining else STEP
            self._timer = loop.call_later(pause, self._step, context=contextvars.Context())

    def _step(self) -> None:
        self._timer = None
        try:
            if self._draining and self._sockets.is_empty():
                self._report_drained()
            if not self._draining:
                self._give_turns()
        finally:  # a logger that fails for one job must not affect the others
            if self._turns or self._draining:
                self._wake()

    def _report_drained(self) -> None:
        for drained in self._draining:
            if not drained.done():
                drained.set_result(None)
        self._draining.clear()

    def _give_turns(self) -> None:
        until = self._clock() + LONGEST_STEP
        while self._turns and self._clock() < until and self._may_write():
            writer = self._turns.popleft()
            if writer.write_record():
                self._turns.append(writer)

    def _may_write(self) -> bool:
        now = self._clock()
        self._budget = min(self._burst, self._budget + (now - self._counted_at) * self._per_second)
        self._counted_at = now
        if self._budget < 1.0 or not self._sockets.has_room():
            return False
        self._budget -= 1.0
        return True


def _configured() -> RateLimiter:
    return RateLimiter(max_log_records_per_second(), SupervisorSockets())


rate_limiters = OnePerLoop(_configured)
"""One `RateLimiter` per event loop; `[ptjob] max_log_records_per_second` is read for the loop's first record."""
