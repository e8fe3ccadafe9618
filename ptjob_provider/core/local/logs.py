"""Write and follow the logs of containers in the kubelet's format.

The supervisor writes them; any process can follow them and gets each line once. A record is
`<RFC3339nano> stdout F text`, with `P` for a part of a line that is long or has not ended for a while. Both streams of
a container share one pipe, so that their order is kept. A reader needs no lock: a complete record never changes, and
the file is complete before the job's state reports the container's end.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from ptjob_provider.core.kinds.pytorchjob import CONTAINER
from ptjob_provider.core.local.launch import pod_uid
from ptjob_provider.core.local.store import make_private, private, read_json
from ptjob_provider.core.logs import LineCounter, Piece

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from ptjob_provider.core.local.store import JobFiles
    from ptjob_provider.core.logs import LogCursor, LogLine

PART = 16 * 1024
"""Maximum bytes of a line in one record, as in containerd."""

_PATIENCE = 500_000_000
"""Nanoseconds after which a line without an end, such as a progress bar, is written as far as it goes."""

_MESSAGE_BYTES = 2048
_MESSAGE_LINES = 80
_INTERVAL = 0.1
_CHUNK = 256 * 1024


class LogFile:
    """Writer of the log of one container."""

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        make_private(path.parent)
        self._file = open(path, "wb", opener=private)  # noqa: SIM115 - open as long as the container writes
        self._clock = clock
        self._last = 0
        self._open_line = b""
        self._open_since = 0
        self._has_part = False
        self._tail = b""

    def write(self, chunk: bytes) -> None:
        """Append output. Complete lines are written to the file at once, and so is what is longer than a part."""
        self._tail = (self._tail + chunk)[-_MESSAGE_BYTES:]
        began = self._open_since if self._open_line else self._clock()
        *lines, self._open_line = (self._open_line + chunk).split(b"\n")
        if lines:
            stamp, began, self._has_part = self._stamp(), self._clock(), False
            self._write(record for line in lines for record in _records(line, stamp))
        self._open_since = began
        if len(self._open_line) >= PART:
            self._write_part()

    def write_unfinished(self) -> None:
        """Write the begun line as a part if it has not ended for a while."""
        if self._open_line and self._clock() - self._open_since >= _PATIENCE:
            self._write_part()

    def finish(self) -> None:
        """Write the last line if it has no line end, and close the file."""
        if self._open_line or self._has_part:
            self._write(_records(self._open_line, self._stamp()))
        self._file.close()

    def message(self) -> str:
        """Return the end of the log like `FallbackToLogsOnError`: 2 KiB or 80 lines, whichever is less."""
        lines = self._tail.splitlines(keepends=True)[-_MESSAGE_LINES:]
        return b"".join(lines).decode("utf-8", errors="replace")

    def _write_part(self) -> None:
        text = self._open_line.removesuffix(b"\r")  # which may be the first half of the line's end
        self._open_line, self._open_since, self._has_part = self._open_line[len(text) :], self._clock(), True
        stamp = self._stamp()
        self._write(stamp + b" stdout P " + part + b"\n" for part in _parts(text))

    def _write(self, records: Iterable[bytes]) -> None:
        self._file.write(b"".join(records))
        self._file.flush()

    def _stamp(self) -> bytes:
        self._last = max(self._clock(), self._last + 1)  # timestamps must increase even if the clock is set back
        return timestamp(self._last).encode()


def timestamp(nanoseconds: int) -> str:
    """Format an instant with nine fractional digits."""
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:09}Z"


def _records(line: bytes, stamp: bytes) -> Iterator[bytes]:
    *parts, last = _parts(line) or [b""]
    yield from (stamp + b" stdout P " + part + b"\n" for part in parts)
    yield stamp + b" stdout F " + last + b"\n"


def _parts(text: bytes) -> list[bytes]:
    return [text[start : start + PART] for start in range(0, len(text), PART)]


def _opened(path: Path, newest: int | None) -> BinaryIO:
    """Return the file at the first record of its last bytes."""
    file = path.open("rb")
    if newest is not None and file.seek(0, os.SEEK_END) > newest:
        file.seek(-newest, os.SEEK_END)
        file.readline()
    else:
        file.seek(0)
    return file


class LocalLog:
    """Reader of the log of one replica's training container."""

    def __init__(self, files: JobFiles, pod: str, *, job_uid: str) -> None:
        self._files = files
        self._pod = pod
        self._job_uid = job_uid
        self._unread = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    async def lines(
        self, *, since: LogCursor | None, follow: bool, newest: int | None = None
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the lines after the cursor; see `Backend.logs`. A record is a line, or a piece of one.

        Args:
            since: cursor of the last line that was read; None: none was.
            follow: wait for further lines.
            newest: maximum bytes of records, the last ones that exist now; None: all.
        """
        uid, path = pod_uid(self._job_uid, self._pod), self._files.log(self._pod, CONTAINER)
        counter = LineCounter(pod_uid=uid, container=CONTAINER, restart_count=0, since=since)
        with ExitStack() as opened:
            file: BinaryIO | None = None
            while True:
                has_ended = self._has_ended()  # before reading: no line is written after the end
                with suppress(FileNotFoundError):  # it has not started, or the job is being removed
                    file = file or opened.enter_context(_opened(path, newest))
                while file and (chunk := file.read(_CHUNK)):
                    for line in counter.lines(self._pieces(chunk)):
                        yield line
                    await asyncio.sleep(0)
                if has_ended or not follow:
                    return
                await asyncio.sleep(_INTERVAL)

    def _pieces(self, chunk: bytes) -> Iterator[Piece]:
        *records, self._unread = (self._unread + chunk).split(b"\n")
        for record in records:
            stamp, _, tag, payload = record.split(b" ", 3)
            continues = tag == b"P"
            text = self._decoder.decode(payload, final=not continues)
            yield Piece(
                text=text if continues else text.removesuffix("\r"), continues=continues, timestamp=stamp.decode()
            )

    def _has_ended(self) -> bool:
        """Return whether the container writes no more lines."""
        job = read_json(self._files.object)
        if not self._files.is_supervised or job is None or job["metadata"]["uid"] != self._job_uid:
            return True
        pods = self._files.read_state().get("pods")
        if pods is None:  # its supervisor has not begun
            return False
        status = next((pod["status"] for pod in pods if pod["metadata"]["name"] == self._pod), {"phase": "Failed"})
        return status["phase"] in ("Succeeded", "Failed")
