"""Write and follow the logs of containers in the kubelet's format.

The supervisor writes them; any process can follow them and gets each line once. A record is
`<RFC3339nano> stdout F text`, with `P` for a part of a long line. Both streams of a container share one pipe, so that
their order is kept. A reader needs no lock: a complete record never changes, and the file of a run is complete before
the file of the next run exists or, for the last run, before the job's state reports the pod's end.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

from ptjob_provider.core.local.operator import CONTAINER, is_finished
from ptjob_provider.core.local.store import JobState, make_private, private
from ptjob_provider.core.logs import CriReader, LineCounter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from ptjob_provider.core.local.store import JobFiles
    from ptjob_provider.core.logs import LogCursor, LogLine

PART = 16 * 1024
"""Maximum bytes of a line in one record, as in containerd."""

_MESSAGE_BYTES = 2048
_MESSAGE_LINES = 80
_INTERVAL = 0.1
_CHUNK = 256 * 1024


class LogFile:
    """Writer of the log of one run of a container."""

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        make_private(path.parent)
        self._file = open(path, "wb", opener=private)  # noqa: SIM115 - open as long as the container writes
        self._clock = clock
        self._last = 0
        self._open_line = b""
        self._tail = b""

    def write(self, chunk: bytes) -> None:
        """Append output. Complete lines and full parts are written to the file at once."""
        self._tail = (self._tail + chunk)[-_MESSAGE_BYTES:]
        *lines, rest = (self._open_line + chunk).split(b"\n")
        complete = len(rest) // PART * PART
        self._open_line = rest[complete:]
        if lines or complete:
            stamp = self._stamp()
            records = [record for line in lines for record in _records(line, stamp)]
            records += [stamp + b" stdout P " + part + b"\n" for part in _parts(rest[:complete])]
            self._file.write(b"".join(records))
            self._file.flush()

    def finish(self) -> None:
        """Write the last line if it has no line end, and close the file."""
        if self._open_line:
            self._file.write(b"".join(_records(self._open_line, self._stamp())))
        self._file.close()

    def message(self) -> str:
        """Return the end of the log like `FallbackToLogsOnError`: 2 KiB or 80 lines, whichever is less."""
        lines = self._tail.splitlines(keepends=True)[-_MESSAGE_LINES:]
        return b"".join(lines).decode("utf-8", errors="replace")

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


class ReplicaLog:
    """Reader of the log of one replica's container, the training container by default, over all its runs."""

    def __init__(self, files: JobFiles, pod: str, *, job_uid: str, container: str = CONTAINER) -> None:
        self._files = files
        self._pod = pod
        self._job_uid = job_uid
        self._container = container
        self._state = JobState(files)

    async def lines(self, *, since: LogCursor | None, follow: bool) -> AsyncGenerator[LogLine, None]:
        """Yield the lines after the cursor; see `Backend.logs`."""
        current: _Run | None = None
        with ExitStack() as opened:
            while True:
                has_ended = self._has_ended()  # before reading: no line is written after the end
                for run in self._runs(since, current):
                    if run is not current:
                        opened.close()
                        current = opened.enter_context(closing(run))
                    while (lines := run.read()) is not None:
                        for line in lines:
                            yield line
                        await asyncio.sleep(0)
                for line in current.finish() if has_ended and current else ():
                    yield line
                if has_ended or not follow:
                    return
                await asyncio.sleep(_INTERVAL)

    def _runs(self, since: LogCursor | None, current: _Run | None) -> list[_Run]:
        """Return the runs in order, from the current one on; on the first call, from the cursor's run on."""
        runs: list[_Run] = []
        with suppress(FileNotFoundError):  # the job is being removed
            paths = self._files.logs_of(self._pod).glob(f"*/{self._container}/*.log")
            runs = sorted((_Run(path, self._container, since) for path in paths), key=lambda run: run.order)
        if current:
            return [current, *(run for run in runs if run.order > current.order)]
        unread = [run for run in runs if since and run.pod_uid == since.pod_uid and run.restart >= since.restart_count]
        return runs[runs.index(unread[0]) :] if unread else runs

    def _has_ended(self) -> bool:
        """Return whether the container writes no more lines and is not started again."""
        is_supervised = self._files.is_supervised
        self._state.refresh()
        job, state = self._state.job, self._state.state
        if not is_supervised or job is None or job["metadata"]["uid"] != self._job_uid:
            return True
        pods = {pod["metadata"]["name"]: pod["status"] for pod in state.get("pods", ())}
        phase = pods[self._pod]["phase"] if self._pod in pods else "Failed"
        if phase == "Succeeded" or (phase == "Failed" and is_finished(state.get("status", {}))):
            return True
        inits = pods.get(self._pod, {}).get("initContainerStatuses", ())
        ends = [each["state"].get("terminated") for each in inits if each["name"] == self._container]
        return any(end and end["exitCode"] == 0 for end in ends)


class _Run:
    """Reader of the log of one run of a container; `order` sorts the runs of a replica."""

    def __init__(self, path: Path, container: str, since: LogCursor | None) -> None:
        incarnation, _, self.pod_uid = path.parents[1].name.partition("_")
        self.restart = int(path.stem)
        self.order = int(incarnation), self.restart
        self._path = path
        self._file: BinaryIO | None = None
        self._reader = CriReader()
        self._counter = LineCounter(pod_uid=self.pod_uid, container=container, restart_count=self.restart, since=since)

    def read(self) -> list[LogLine] | None:
        """Return the new lines of the next part of the file; None at its end.

        The file stays open: its rest can be read while the job is being removed.
        """
        with suppress(FileNotFoundError):
            self._file = self._file or self._path.open("rb")
        chunk = self._file.read(_CHUNK) if self._file else b""
        return list(self._counter.lines(self._reader.feed(chunk))) if chunk else None

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def finish(self) -> list[LogLine]:
        """Return the last line, if its writer ended before it was complete."""
        return list(self._counter.lines(self._reader.finish()))
