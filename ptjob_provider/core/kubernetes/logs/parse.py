"""Parse the log of a run into lines with cursors, keep a reader's position, and create notices of lost lines. Pure.

Only a rotated log shows that there were earlier lines. Of a run whose log is gone it is unknown whether it wrote any
lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.logs import LineCounter, LineSplitter, LogCursor, LogLine, Piece, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.logs.runs import Run


class NodeRefused(Exception):
    """The response is not the run's log: the kubelet's error message with a success status, or the next run's log."""


class LogReader:
    """Parses the log in one response, and drops the lines up to a cursor.

    Args:
        run: the run whose log was requested.
        since: cursor of the last line that was read; None for none.

    Attributes:
        counter: shows whether the cursor's line was reached, and whether the node's clock was set back.
    """

    def __init__(self, run: Run, since: LogCursor | None) -> None:
        self._splitter = LineSplitter()
        self.counter = LineCounter(
            pod_uid=run.pod_uid, container=run.container, restart_count=run.restart_count, since=since
        )
        self._stamp = run.started_at
        self._is_within = False

    def feed(self, chunk: bytes) -> Iterator[LogLine]:
        """Yield the new lines that are complete with this chunk."""
        return self.counter.lines([self._stamped(piece) for piece in self._splitter.feed(chunk)])

    def finish(self) -> Iterator[LogLine]:
        """Yield the last line if it has no line end yet.

        Raises:
            NodeRefused: the text is the kubelet's, because a line of the container begins with a timestamp.
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
    """Return an RFC 3339 instant truncated to the second, as the API server sends it to the kubelet."""
    head, dot, tail = timestamp.partition(".")
    return head + tail.lstrip("0123456789") if dot else timestamp


class ReadPosition:
    """Position of one reader in the runs of a replica.

    Attributes:
        read: cursor of the last line that was read; None for none.
        last: the last run that was read to its end; None for none.
    """

    def __init__(self) -> None:
        self.read: LogCursor | None = None
        self.last: Run | None = None

    def since(self, run: Run) -> LogCursor | None:
        """Return the cursor of the last line that was read, if the line was reported as this run's; else None."""
        read = self.read
        return read if read and (read.pod_uid, read.restart_count) == (run.pod_uid, run.restart_count) else None

    def may_be_of(self, run: Run) -> bool:
        """Return whether the last line was reported as an earlier run's, although this run may have written it."""
        read = self.read
        if read is None or read.pod_uid != run.pod_uid or read.restart_count >= run.restart_count:
            return False
        return nanoseconds(read.timestamp) >= nanoseconds(run.started_at)

    def has_read(self, run: Run) -> bool:
        """Return whether this run was read to its end, or lines of a later run of its pod were read."""
        if self.last is not None and self.last.pod_uid == run.pod_uid:
            return self.last.restart_count >= run.restart_count
        read = self.read
        return read is not None and read.pod_uid == run.pod_uid and read.restart_count > run.restart_count


def start_of_run(run: Run) -> LogCursor:
    """Return the cursor before the first line of a run."""
    return _before_first(run.pod_uid, run.restart_count, run.started_at, run.container)


def start_of_pod(pod: Manifest, container: str = kinds.DEFAULT.CONTAINER) -> LogCursor:
    """Return the cursor before the first line of a pod's first run."""
    meta = pod["metadata"]
    return _before_first(meta["uid"], 0, pod["status"].get("startTime") or meta["creationTimestamp"], container)


def is_skipped(read: LogCursor, last: Run | None, oldest: Run) -> bool:
    """Return whether there were runs between the last line that was read and the oldest run that the node has.

    Args:
        read: cursor of the last line that was read.
        last: the last run that was read to its end; None for none.
        oldest: the oldest run whose log the node still has.
    """
    if last is not None and last.pod_uid == oldest.pod_uid:
        return oldest.restart_count > last.restart_count + 1
    if last is not None and last.pod_uid == read.pod_uid:
        return oldest.restart_count > 0
    return read.pod_uid != oldest.pod_uid or oldest.restart_count > read.restart_count


def rotated(replica: str, cursor: LogCursor, until: str) -> LogLine:
    """Return the notice that lines after a cursor were rotated out, or may have been.

    The cursor's line may have been the last one of the previous file, so that no line is lost.

    Args:
        replica: name of the replica.
        cursor: cursor of the last line that was read.
        until: timestamp of the first existing line, or a text if there is none.
    """
    return _gap(replica, cursor, until, "its log had been rotated")


def skipped(replica: str, cursor: LogCursor, until: Run) -> LogLine:
    """Return the notice that lines between a cursor and this run were removed before they could be read."""
    is_same_pod = cursor.pod_uid == until.pod_uid
    why = f"its container had been started again, run {_number(until)}" if is_same_pod else "its pod had been replaced"
    return _gap(replica, cursor, until.started_at, why)


def started_again(replica: str, cursor: LogCursor, run: Run) -> LogLine:
    """Return the notice that the next lines are of another run of the container."""
    return _notice(f"{replica}: its container was started again at {run.started_at}: run {_number(run)}", cursor)


def repeated(replica: str, cursor: LogCursor, oldest: Run) -> LogLine:
    """Return the notice that runs are read again, because it is unknown which of their lines were read."""
    why = "its container was started again, and the cluster reported it late"
    missing = ", and earlier ones may be missing" if oldest.restart_count > cursor.restart_count else ""
    return _notice(f"{replica}: lines since {oldest.started_at} may be repeated{missing}: {why}", cursor)


def queued(replica: str, cursor: LogCursor) -> LogLine:
    """Return the notice that a run is not read yet, because all streams are in use."""
    limits = "of what it writes until then, its node keeps the newest 10 MiB"
    why = "all log streams of this process are in use (max_log_streams)"
    return _notice(f"{replica}: {why}; its log is read when one is free, or at its end: {limits}", cursor)


def lost(replica: str, cursor: LogCursor) -> LogLine:
    """Return the notice that the lines of a run after a cursor can no longer be read; its pod may be gone, too."""
    why = "its log is not on its node any more"
    return _notice(f"{replica}: {why}; what it wrote after {cursor.timestamp}, if anything, was lost with it", cursor)


def _number(run: Run) -> int:
    return run.restart_count + 1


def _gap(replica: str, cursor: LogCursor, until: str, why: str) -> LogLine:
    lines = f"{replica}: what it wrote between {cursor.timestamp} and {until}, if anything,"
    return _notice(f"{lines} was gone at the node before it could be read ({why})", cursor)


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
