"""Parse one run's log, as the kubelet serves it with timestamps, into lines with cursors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.logs import LineCounter, LineSplitter, StampedPiece, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ptjob_provider.core.kubernetes.podlog.runs import Run
    from ptjob_provider.core.logs import LogCursor, LogLine, Piece


class NodeRefused(Exception):
    """The kubelet could not read the log, and sent the error in place of the log with a success status."""


class LogReader:
    """Parses one response, and drops lines up to `since`; see `LineCounter`."""

    def __init__(self, run: Run, since: LogCursor | None) -> None:
        self._splitter = LineSplitter()
        self._counter = LineCounter(
            pod_uid=run.pod_uid, container=run.container, restart_count=run.restart_count, since=since
        )
        self._stamp = run.started_at
        self._is_within = False

    @property
    def has_reached(self) -> bool | None:
        """Return whether the line of `since` appeared; None while undecided."""
        return self._counter.has_reached

    @property
    def is_unsteady(self) -> bool:
        """Return whether the node's clock was set back within the response."""
        return self._counter.is_unsteady

    def feed(self, chunk: bytes) -> Iterator[LogLine]:
        """Yield the new lines that this chunk completes."""
        return self._counter.lines([self._stamped(piece) for piece in self._splitter.feed(chunk)])

    def finish(self) -> Iterator[LogLine]:
        """Yield the container's remaining text without a line end.

        Raises:
            NodeRefused: it is not the container's: its lines begin with a timestamp and end with a line end.
        """
        left = self._splitter.finish()
        if left and not self._is_within and not _is_stamp(left[0].text.partition(" ")[0]):
            raise NodeRefused(left[0].text)
        return self._counter.lines([self._stamped(piece) for piece in left])

    def _stamped(self, piece: Piece) -> StampedPiece:
        text = piece.text
        if not self._is_within:
            stamp, _, rest = text.partition(" ")
            if _is_stamp(stamp):
                self._stamp, text = stamp, rest
        self._is_within = piece.continues
        return StampedPiece(timestamp=self._stamp, text=text, continues=piece.continues)


def _is_stamp(text: str) -> bool:
    try:
        nanoseconds(text)
    except ValueError:
        return False
    return True


def whole_second(timestamp: str) -> str:
    """Truncate an RFC 3339 instant to its second, as the server does on its way to the kubelet."""
    head, dot, tail = timestamp.partition(".")
    return head + tail.lstrip("0123456789") if dot else timestamp
