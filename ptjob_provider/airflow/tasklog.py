"""Rank 0's lines and sentences about the job → the task's log, through Airflow's own logger.

A line is a record of its own while lines come slowly. When they come fast, those of a tenth of a second go into one
record: a trigger's logger takes about 2,000 records a second, and all jobs of a triggerer share it. Nothing is shed.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import socket
import stat
import termios
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow.masking import masked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ptjob_provider.airflow.pulse import Pulse
    from ptjob_provider.core.logs import LogCursor, LogLine

MAX_RECORD = 32 * 1024
"""Characters that one record holds at most; Airflow lost records of several megabytes (apache/airflow#66158)."""

CONTINUES = " …"
"""Ends a piece of a line that goes on in the next record."""

_INTERVAL = 0.1


class TaskLog:
    """A sink (`runner.Sink`) on a logger. `cursor` is the place of the last line that the logger was given.

    Args:
        logger: the task's.
        cursor: the place of the last line that was given to it in an earlier life.
        heir_of_a_kill: whether that life was cut off, so that more lines than the cursor says may be in the log.
        pulse: says when lines may have been written by another meanwhile. None: nobody takes over while this process
            lives.
    """

    def __init__(
        self,
        logger: Any,
        *,
        cursor: LogCursor | None = None,
        heir_of_a_kill: bool = False,
        pulse: Pulse | None = None,
    ) -> None:
        self._logger = logger
        self._pulse = pulse
        self._standstills = pulse.standstills() if pulse else 0
        self._waiting: list[str] = []
        self._size = 0
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._seen: LogCursor | None = None
        self._repeats_until = ""
        self.cursor = cursor
        if heir_of_a_kill:
            self._mark_repeats("their last reader was killed")

    def line(self, line: LogLine) -> None:
        """Take one line, or one piece of a long one."""
        self._mark_a_standstill()
        if self._repeats_until and line.timestamp[:19] > self._repeats_until[:19]:
            self._repeats_until = ""
            self.notice("── from here on nothing is repeated ──")
        for text, continues in _pieces(line.text, continues=line.continues):
            self._add(text + (CONTINUES if continues else ""))
        self._seen = line.cursor
        self._flush_or_wait()

    def notice(self, text: str) -> None:
        """Take one sentence about the job."""
        self.flush()
        self._tell(text)

    def flush(self) -> None:
        """Give the logger what it has not got yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            self._tell("\n".join(self._waiting))
            self._waiting.clear()
            self._size = 0
            self._next = time.monotonic() + _INTERVAL
        self.cursor = self._seen or self.cursor

    def _tell(self, text: str) -> None:
        # Airflow masks what it writes to the task's log, but not the copy that LocalExecutor prints (seen on 3.3.2).
        self._logger.info("%s", masked(text))

    def _mark_a_standstill(self) -> None:
        standstills = self._pulse.standstills() if self._pulse else 0
        if standstills > self._standstills:
            self._standstills = standstills
            self._mark_repeats("this process stood still, and another may have gone on")

    def _mark_repeats(self, why: str) -> None:
        self._repeats_until = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.notice(f"── lines up to {self._repeats_until} may be repeated here: {why} ──")

    def _add(self, text: str) -> None:
        if self._waiting and self._size + len(text) > MAX_RECORD:
            self.flush()
        self._waiting.append(text)
        self._size += len(text) + 1

    def _flush_or_wait(self) -> None:
        left = self._next - time.monotonic()
        if left <= 0:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(left, self.flush)


async def drained(patience: float = 5.0) -> bool:
    """Wait until this process's log has left it, at most `patience` seconds, and say whether it has.

    Airflow drops what is still on its way when a trigger's event arrives: of 10,000 lines written just before it, 49
    went to the triggerer's own log (seen on 3.3.2).
    """
    deadline = time.monotonic() + patience
    while any(_unsent(each) for each in _sockets()):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def _pieces(text: str, *, continues: bool) -> Iterator[tuple[str, bool]]:
    starts = range(0, max(len(text), 1), MAX_RECORD)
    for start in starts:
        yield text[start : start + MAX_RECORD], continues or start + MAX_RECORD < len(text)


def _sockets() -> list[int]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode) and _family(descriptor) == socket.AF_UNIX:
                found.append(descriptor)
    return found


def _family(descriptor: int) -> int:
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        return copy.family


def _unsent(descriptor: int) -> int:
    size = array.array("i", [0])
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCOUTQ, size)
    return size[0]
