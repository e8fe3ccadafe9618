"""Show how far a copy is: a bar on stderr, from the first byte on."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def counted(stream: IO[bytes], about: str) -> Iterator[IO[bytes]]:
    """Yield the stream, whose bytes are counted by a bar while they are read or written.

    Nothing is drawn where stderr is no terminal, or one that cannot erase a line.

    Args:
        stream: it is empty, and is written; or it is read from its beginning.
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
    task = bar.add_task(about, total=stream.seek(0, os.SEEK_END) or None)
    stream.seek(0)

    def count(size: int) -> None:
        bar.start()
        bar.advance(task, size)

    try:
        yield cast("IO[bytes]", _Counted(stream, count))
    finally:
        bar.stop()


class _Counted:
    """Stream that tells how many bytes were read or written."""

    def __init__(self, stream: IO[bytes], count: Callable[[int], None]) -> None:
        self._stream = stream
        self._count = count
        self.close = stream.close

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._count(len(piece))
        return piece

    def write(self, piece: bytes) -> int:
        self._count(len(piece))
        return self._stream.write(piece)
