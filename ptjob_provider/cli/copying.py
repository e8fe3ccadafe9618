"""Show how far a copy is: a bar on stderr, once the copy has taken a second."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_AFTER, _INTERVAL = 1.0, 0.1
"""Seconds of a copy before it has a bar, and between two states of the bar: tar writes 10 KiB at a time."""


@contextmanager
def counted(stream: IO[bytes], about: str) -> Iterator[IO[bytes]]:
    """Yield the stream, whose bytes are counted by a bar while they are read or written.

    Nothing is drawn where stderr is no terminal, or one that cannot erase a line.

    Args:
        stream: a tar archive: it is written, or read from its beginning.
        about: what is done with the bytes.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield stream
        return
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(about, total=None)

    def show(done: int, total: int | None) -> None:
        bar.update(task, completed=done, total=total)
        bar.start()

    try:
        yield cast("IO[bytes]", _Counted(stream, show))
    finally:
        bar.stop()


class _Counted:
    """Stream that tells now and then how many bytes were read or written, and of how many, where that is known."""

    def __init__(self, stream: IO[bytes], show: Callable[[int, int | None], None]) -> None:
        self._stream = stream
        self._show = show
        self._done = 0
        self._total: int | None = None
        self._due = time.monotonic() + _AFTER

    def read(self, size: int = -1) -> bytes:
        if not self._done:
            self._total = self._stream.seek(0, os.SEEK_END)
            self._stream.seek(0)
        piece = self._stream.read(size)
        self._count(len(piece))
        return piece

    def write(self, piece: bytes) -> int:
        if not self._done:
            self._total = _size_of(piece)
        self._count(len(piece))
        return self._stream.write(piece)

    def close(self) -> None:
        self._stream.close()

    def _count(self, size: int) -> None:
        self._done += size
        if (now := time.monotonic()) >= self._due:
            self._due = now + _INTERVAL
            self._show(self._done, self._total)


def _size_of(begin: bytes) -> int | None:
    """Return the size of an archive of one file, from its first bytes; None for a folder, whose size is unknown."""
    try:
        with tarfile.open(fileobj=io.BytesIO(begin), mode="r:") as archive:
            first = archive.next()
    except tarfile.TarError:
        return None
    return first.size if first and first.isfile() else None
