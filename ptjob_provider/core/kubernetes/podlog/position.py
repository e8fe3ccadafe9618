"""Position of a reader in a replica's log: the last line read, and its meaning for each run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptjob_provider.core.kubernetes.podlog.runs import Run
    from ptjob_provider.core.logs import LogCursor


class Position:
    """Position of one reader.

    Attributes:
        read: cursor of the last line that was read; None for none.
        last: the last run that was read to its end; None for none.
    """

    def __init__(self) -> None:
        self.read: LogCursor | None = None
        self.last: Run | None = None
        self._is_unsteady = False

    def take(self, place: LogCursor, *, is_unsteady: bool) -> None:
        """Advance to this line.

        Args:
            place: the line's cursor.
            is_unsteady: the node's clock was set back before it.
        """
        self.read = place
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
        return self.place_in(run)

    def place_in(self, run: Run) -> LogCursor | None:
        """Return the last line read if it was reported as this run's."""
        read = self.read
        return read if read and (read.pod_uid, read.restart_count) == (run.pod_uid, run.restart_count) else None

    def behind(self, run: Run) -> LogCursor | None:
        """Return the last line read if it was reported as a later run's of the same pod."""
        read = self.read
        return read if read and read.pod_uid == run.pod_uid and read.restart_count > run.restart_count else None

    def is_told(self, run: Run) -> bool:
        """Return whether this run, or a later one of its pod, was read."""
        if self.last is not None and self.last.pod_uid == run.pod_uid:
            return self.last.restart_count >= run.restart_count
        return self.behind(run) is not None
