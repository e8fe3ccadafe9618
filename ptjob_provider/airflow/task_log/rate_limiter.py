"""Limit the log records per second of all jobs of an event loop together, and wait until Airflow has read them.

A triggerer runs thousands of jobs on one loop, and every record passes through Airflow's logger on that loop and
through the one thread that also manages the triggerer's database rows: it reads 4 KB between two database queries
(3.3.2), and a write to a full socket blocks the loop until then. Above the limit, a job's lines wait for its turn and
are joined in one record: no line is dropped, and no job waits for more than one record of each other job.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ptjob_provider.airflow import supervisor
from ptjob_provider.airflow.config import max_log_records_per_second
from ptjob_provider.core.shared import OnePerLoop

if TYPE_CHECKING:
    from collections.abc import Callable

BURST = 0.05
"""Maximum burst, in seconds of the limit: Airflow's logger blocks the loop while it writes."""

MAX_UNREAD = 64 * 1024
"""Unread bytes above which no record is written. A socket takes 208 KB, and a record is of 32 K characters at most."""

STEP = 0.01
"""Seconds between two rounds of turns while a writer waits, and between two checks for unread bytes."""


class Writer(Protocol):
    """A job's pending lines."""

    def write_record(self) -> bool:
        """Write one record, and return whether more is waiting."""


class RateLimiter:
    """Limits the log records per second of an event loop, and gives its writers turns.

    Args:
        per_second: maximum records per second.
        unread: returns the bytes that Airflow's supervisor has not read yet.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        per_second: float,
        unread: Callable[[], int] = supervisor.unread_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second = per_second
        self._burst = max(1.0, per_second * BURST)
        self._unread = unread
        self._clock = clock
        self._budget = self._burst
        self._counted_at = clock()
        self._turns: deque[Writer] = deque()
        self._drained: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> bool:
        """Take one record at once, if the limit allows it and no writer waits for a turn."""
        return not self._turns and self._drained is None and self._may_write()

    def queue(self, writer: Writer) -> None:
        """Give the writer turns until it has nothing to write; a no-op for a writer already in the queue."""
        self._turns.append(writer)
        self._wake()

    async def drain(self, patience: float) -> bool:
        """Wait until the supervisor has read everything, and return whether it has.

        Airflow drops records in transit when a trigger's event arrives: of 10,000 lines written just before it, 49 went
        to the triggerer's own log (3.3.2). No writer has a turn until all is read, else the wait might never end.

        Args:
            patience: seconds in which something must be read: a slow triggerer needs many to read all.
        """
        if not (least := self._unread()):
            return True
        drained = self._drained = self._drained or asyncio.get_running_loop().create_future()
        self._wake()
        while not (await asyncio.wait({drained}, timeout=patience))[0]:
            before, least = least, min(least, self._unread())
            if least == before:
                return False
        return True

    def _wake(self) -> None:
        if self._timer is None:  # an empty context: the timer serves all jobs, not only the one that starts it
            self._timer = asyncio.get_running_loop().call_later(STEP, self._step, context=contextvars.Context())

    def _step(self) -> None:
        self._timer = None
        if self._drained is not None and not self._unread():
            self._drained.set_result(None)
            self._drained = None
        try:
            if self._drained is None:
                self._give_turns()
        finally:  # a logger that fails for one job must not affect the others
            if self._turns or self._drained is not None:
                self._wake()

    def _give_turns(self) -> None:
        while self._turns and self._may_write():
            writer = self._turns.popleft()
            has_more = True  # also if its logger fails: the writer still counts on its turn
            try:
                has_more = writer.write_record()
            finally:
                if has_more:
                    self._turns.append(writer)

    def _may_write(self) -> bool:
        now = self._clock()
        self._budget = min(self._burst, self._budget + (now - self._counted_at) * self._per_second)
        self._counted_at = now
        if self._budget < 1.0 or self._unread() > MAX_UNREAD:
            return False
        self._budget -= 1.0
        return True


rate_limiters = OnePerLoop(lambda: RateLimiter(max_log_records_per_second()))
"""One `RateLimiter` per event loop; `[ptjob] max_log_records_per_second` is read for the loop's first record."""
