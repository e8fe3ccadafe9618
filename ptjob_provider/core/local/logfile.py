"""Write a container's output to its log file in the kubelet's format.

A record is `<RFC3339nano> stdout F text`, with `P` for a partial line.
Both streams of a container share one pipe, so that their order is kept. A reader of the file needs no lock: every
complete record is final.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ptjob_provider.core.local.files import make_private, private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PART = 16 * 1024
"""Maximum bytes of a line in one record; containerd's number."""

_MESSAGE_BYTES = 2048
_MESSAGE_LINES = 80


class LogFile:
    """The log of one run of a container."""

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        make_private(path.parent)
        self._file = open(path, "wb", opener=private)  # noqa: SIM115 - open as long as the container writes
        self._clock = clock
        self._last = 0
        self._open_line = b""
        self._tail = b""

    def write(self, chunk: bytes) -> None:
        """Append output; complete lines and full parts are in the file afterwards."""
        self._tail = (self._tail + chunk)[-_MESSAGE_BYTES:]
        *lines, rest = (self._open_line + chunk).split(b"\n")
        stamp = self._stamp()
        records = [record for line in lines for record in _records(line, stamp)]
        while len(rest) >= PART:
            records.append(stamp + b" stdout P " + rest[:PART] + b"\n")
            rest = rest[PART:]
        self._open_line = rest
        if records:
            self._file.write(b"".join(records))
            self._file.flush()

    def finish(self) -> None:
        """Write the remaining text without a line end, and close."""
        if self._open_line:
            self._file.write(b"".join(_records(self._open_line, self._stamp())))
            self._open_line = b""
        self._file.close()

    def message(self) -> str:
        """Return the end of the log like `FallbackToLogsOnError`: 2 KiB or 80 lines, whichever is less."""
        lines = self._tail.splitlines(keepends=True)[-_MESSAGE_LINES:]
        return b"".join(lines).decode("utf-8", errors="replace")

    def _stamp(self) -> bytes:
        self._last = max(self._clock(), self._last + 1)  # a clock that is set back must not reorder the log
        return timestamp(self._last).encode()


def timestamp(nanoseconds: int) -> str:
    """Format an instant with nine fractional digits."""
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:09}Z"


def _records(line: bytes, stamp: bytes) -> list[bytes]:
    if len(line) <= PART:
        return [stamp + b" stdout F " + line + b"\n"]
    parts = [line[start : start + PART] for start in range(0, len(line), PART)]
    return [stamp + b" stdout P " + part + b"\n" for part in parts[:-1]] + [stamp + b" stdout F " + parts[-1] + b"\n"]
