"""Where a reader is in a replica's log: the last line that it has read, and what that means for each run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptjob_provider.core.kubernetes.podlog.runs import Run
    from ptjob_provider.core.logs import LogCursor


class Position:
    """One reader's.

    Attributes:
        read: the place of the last line that was read; None if there was none.
        last: the run that was read to its end last; None if none was.
    """

    def __init__(self) -> None:
        self.read: LogCursor | None = None
        self.last: Run | None = None
        self._is_unsteady = False

    def take(self, place: LogCursor, *, is_unsteady: bool) -> None:
        """Go on to this line.

        Args:
            place: the line's.
            is_unsteady: whether the node's clock was set back before it.
        """
        self.read = place
        self._is_unsteady = self._is_unsteady or is_unsteady

    def since(self, run: Run) -> LogCursor | None:
        """Return the last line that was read as a place in this run; None if it is not of this pod, or before it."""
        read = self.read
        if read is None or read.pod_uid != run.pod_uid or read.restart_count > run.restart_count:
            return None
        if read.restart_count < run.restart_count and run.began_after(read.timestamp):
            return None
        return replace(read, restart_count=run.restart_count)

    def expected(self, run: Run) -> LogCursor | None:
        """Return the line that an answer must begin with if nothing is missing; None if that cannot be told.

        A place that was carried over may be the run's before; one of a notice is no line's; and where the node's clock
        was set back, later timestamps stand before it.
        """
        read = self.read
        if read is None or self._is_unsteady or read.ordinal < 0:
            return None
        return self.place_in(run)

    def place_in(self, run: Run) -> LogCursor | None:
        """Return the last line that was read if it was told as one of this run's."""
        read = self.read
        return read if read and (read.pod_uid, read.restart_count) == (run.pod_uid, run.restart_count) else None

    def behind(self, run: Run) -> LogCursor | None:
        """Return the last line that was read if it was told as one of a later run of the same pod."""
        read = self.read
        return read if read and read.pod_uid == run.pod_uid and read.restart_count > run.restart_count else None

    def is_told(self, run: Run) -> bool:
        """Whether this run, or a later one of its pod, was read."""
        if self.last is not None and self.last.pod_uid == run.pod_uid:
            return self.last.restart_count >= run.restart_count
        return self.behind(run) is not None
