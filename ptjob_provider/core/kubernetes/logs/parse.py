"""Parse one run's log into lines with cursors, keep a reader's position, and report lost lines. Pure.

Only a rotated file shows that lines preceded it. For a run that is no longer readable it is unknown whether it wrote
any.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.logs import LineCounter, LineSplitter, LogCursor, LogLine, Piece, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.logs.runs import Run


class NodeRefused(Exception):
    """The kubelet could not read the log, and sent the error in cursor of the log with a success status."""


class LogReader:
    """Parses one response, and drops lines up to `since`.

    Attributes:
        counter: whether `since` was reached, and whether the node's clock was set back.
    """

    def __init__(self, run: Run, since: LogCursor | None) -> None:
        self._splitter = LineSplitter()
        self.counter = LineCounter(
            pod_uid=run.pod_uid, container=run.container, restart_count=run.restart_count, since=since
        )
        self._stamp = run.started_at
        self._is_within = False

    def feed(self, chunk: bytes) -> Iterator[LogLine]:
        """Yield the new lines that this chunk completes."""
        return self.counter.lines([self._stamped(piece) for piece in self._splitter.feed(chunk)])

    def finish(self) -> Iterator[LogLine]:
        """Yield the container's remaining text without a line end.

        Raises:
            NodeRefused: it is not the container's: its lines begin with a timestamp and end with a line end.
        """
        left = self._splitter.finish()
        if left and not self._is_within and not _is_stamp(left[0].text.partition(" ")[0]):
            raise NodeRefused(left[0].text)
        return self.counter.lines([self._stamped(piece) for piece in left])

    def _stamped(self, piece: Piece) -> Piece:
        text = piece.text
        if not self._is_within:
            stamp, _, rest = text.partition(" ")
            if _is_stamp(stamp):
                self._stamp, text = stamp, rest
        self._is_within = piece.continues
        return Piece(text=text, continues=piece.continues, timestamp=self._stamp)


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


class ReadPosition:
    """ReadPosition of one reader.

    Attributes:
        read: cursor of the last line that was read; None for none.
        last: the last run that was read to its end; None for none.
    """

    def __init__(self) -> None:
        self.read: LogCursor | None = None
        self.last: Run | None = None
        self._is_unsteady = False

    def take(self, cursor: LogCursor, *, is_unsteady: bool) -> None:
        """Advance to this line.

        Args:
            cursor: the line's cursor.
            is_unsteady: the node's clock was set back before it.
        """
        self.read = cursor
        self._is_unsteady = self._is_unsteady or is_unsteady

    def since(self, run: Run) -> LogCursor | None:
        """Return the last line read as a cursor in this run; None if of another pod or run."""
        read = self.read
        if read is None or read.pod_uid != run.pod_uid or read.restart_count > run.restart_count:
            return None
        if read.restart_count < run.restart_count and run.began_after(read.timestamp):
            return None
        return replace(read, restart_count=run.restart_count)

    def expected(self, run: Run) -> LogCursor | None:
        """Return the line that an answer must begin with if nothing is missing; None if unknown.

        A carried-over cursor may belong to the previous run; a notice's cursor is no line's; and where the node's clock
        was set back, later timestamps precede it.
        """
        read = self.read
        if read is None or self._is_unsteady or read.ordinal < 0:
            return None
        return self.cursor_in(run)

    def cursor_in(self, run: Run) -> LogCursor | None:
        """Return the last line read if it was reported as this run's."""
        read = self.read
        return read if read and (read.pod_uid, read.restart_count) == (run.pod_uid, run.restart_count) else None

    def behind(self, run: Run) -> LogCursor | None:
        """Return the last line read if it was reported as a later run's of the same pod."""
        read = self.read
        return read if read and read.pod_uid == run.pod_uid and read.restart_count > run.restart_count else None

    def has_read(self, run: Run) -> bool:
        """Return whether this run, or a later one of its pod, was read."""
        if self.last is not None and self.last.pod_uid == run.pod_uid:
            return self.last.restart_count >= run.restart_count
        return self.behind(run) is not None


_ROTATION = 3_000_000_000
"""Minimum nanoseconds between two rotations of one log."""

_STARTED_AGAIN = "its container had been started again"


def start_of_run(run: Run) -> LogCursor:
    """Return the cursor before a run's first line."""
    return _before_first(run.pod_uid, run.restart_count, run.started_at, run.container)


def start_of_pod(pod: Manifest, container: str = kinds.DEFAULT.CONTAINER) -> LogCursor:
    """Return the cursor before the first line of a pod's first run."""
    meta = pod["metadata"]
    return _before_first(meta["uid"], 0, pod["status"].get("startTime") or meta["creationTimestamp"], container)


def is_skipped(read: LogCursor, last: Run | None, oldest: Run) -> bool:
    """Return whether lines were written between the last line read and the oldest run that is kept.

    Args:
        read: cursor of that line.
        last: the last run that was read to its end; None for none.
        oldest: the oldest run that the node still has.
    """
    if last is not None and last.pod_uid == oldest.pod_uid:
        return oldest.restart_count > last.restart_count + 1
    if last is not None and last.pod_uid == read.pod_uid:
        return oldest.restart_count > 0
    if read.pod_uid == oldest.pod_uid:
        return oldest.restart_count > read.restart_count and oldest.began_after(read.timestamp)
    return True


def is_mislabelled(read: LogCursor, run: Run) -> bool:
    """Return True if the last line was reported for an earlier run although this one wrote it."""
    is_earlier = read.pod_uid == run.pod_uid and read.restart_count < run.restart_count
    return is_earlier and not run.began_after(read.timestamp)


def rotated(replica: str, cursor: LogCursor, until: str) -> LogLine:
    """Return the notice that lines after a cursor were rotated out, or may have been.

    If the file begins within three seconds of the cursor, no whole file lies between them: the kubelet rotates no
    sooner (`containerLogMonitorInterval`, at least 3 s). Its predecessor may have ended with the very line.

    Args:
        replica: the log's replica.
        cursor: cursor of the last line that was read.
        until: timestamp of the first existing line; or text that there is none.
    """
    return _gap(replica, cursor, until, "its log had been rotated", is_certain=not _is_soon(cursor.timestamp, until))


def skipped(replica: str, cursor: LogCursor, until: Run) -> LogLine:
    """Return the notice that lines after a cursor were removed before this run could be read."""
    is_same_pod = cursor.pod_uid == until.pod_uid
    return _gap(replica, cursor, until.started_at, _STARTED_AGAIN if is_same_pod else "its pod had been replaced")


def mislabelled(replica: str, cursor: LogCursor, run: Run, begin: LogCursor) -> LogLine:
    """Return the notice that the previous run may be unread: its last reported line belongs to this run.

    Args:
        replica: the log's replica.
        cursor: cursor of the line.
        run: the run that it belongs to.
        begin: the beginning of the pod's log.
    """
    notice = _gap(replica, begin, run.started_at, _STARTED_AGAIN)
    return replace(notice, cursor=replace(cursor, restart_count=run.restart_count))


def mistaken(replica: str, run: Run, until: str) -> LogLine:
    """Return the notice that a run was removed unread; lines reported as its own came later, from this instant on."""
    return _gap(replica, start_of_run(run), until, _STARTED_AGAIN)


def lost(replica: str, cursor: LogCursor, *, has_pod: bool) -> LogLine:
    """Return the notice that the end of a run is no longer readable."""
    why = "its log is not on its node any more" if has_pod else "its pod is gone"
    return _notice(f"{replica}: {why}; what it wrote after {cursor.timestamp}, if anything, was lost with it", cursor)


def belated(replica: str, cursor: LogCursor, before: str) -> LogLine:
    """Return the notice that a run's lines follow the beginning of the next one."""
    return _notice(f"{replica}: what follows was written before {before}, by the run before (reported late)", cursor)


def _is_soon(timestamp: str, until: str) -> bool:
    return until[:1].isdigit() and nanoseconds(until) - nanoseconds(timestamp) < _ROTATION


def _gap(replica: str, cursor: LogCursor, until: str, why: str, *, is_certain: bool = False) -> LogLine:
    what = f"{replica}: what it wrote between {cursor.timestamp} and {until}" + ("" if is_certain else ", if anything,")
    return _notice(f"{what} was gone at the node before it could be read ({why})", cursor)


def _notice(text: str, cursor: LogCursor) -> LogLine:
    return LogLine(text=text, timestamp=cursor.timestamp, cursor=cursor, notice=True)


def _before_first(pod_uid: str, restart_count: int, timestamp: str, container: str) -> LogCursor:
    return LogCursor(
        pod_uid=pod_uid,
        container=container,
        restart_count=restart_count,
        timestamp=timestamp,
        ordinal=-1,
    )
