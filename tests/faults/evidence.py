"""What a trial has seen, as values; what it means is decided in `judgement`."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faults.proxy import Asked
    from faults.schedule import Schedule
    from ptjob_provider.core.logs import LogCursor, LogLine
    from ptjob_provider.core.run.outcome import JobOutcome


_LATE = "(reported late)"


@dataclass(kw_only=True)
class Life:
    """One follower, from its beginning to its end; the sink of what it tells.

    Attributes:
        began_with: the cursor that it began with.
        began_after: the line of that cursor; "" at the log's beginning.
        lines: what it told of rank 0.
        notices: what else it told; sentences about the log stand among them.
        error: what ended it, if nobody else did.
    """

    began_with: LogCursor | None = None
    began_after: str = ""
    lines: list[LogLine] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    error: str = ""

    def line(self, line: LogLine) -> None:
        """Take a line of rank 0, or a sentence about its log."""
        if line.notice:
            self.notices.append(line.text)
        else:
            self.lines.append(line)

    def notice(self, text: str) -> None:
        """Take a sentence about the job."""
        self.notices.append(text)

    async def room(self) -> None:
        """Take more at once."""

    def next(self, *, keeps_cursor: bool) -> Life:
        """Return the follower that comes after this one, from the last line or from half of what this one told."""
        kept = len(self.lines) if keeps_cursor else len(self.lines) // 2
        if not kept:
            return Life(began_with=self.began_with, began_after=self.began_after)
        return Life(began_with=self.lines[kept - 1].cursor, began_after=self.in_order(kept)[-1])

    def in_order(self, first: int | None = None) -> list[str]:
        """Return its first lines in the order of the log: a run may be reported late, behind the next one."""
        texts = [line.text for line in self.lines[:first]]
        is_late = any(_LATE in notice for notice in self.notices)
        return sorted(texts, key=lambda text: text.partition(" line ")[0]) if is_late else texts


@dataclass(frozen=True, kw_only=True)
class OtherEvidence:
    """What was seen of another installation's task with the same ids, whose requests nothing harms.

    Attributes:
        life: its one follower.
        conclusion: of its job; None if it never came.
        created: the names of all jobs that were ever created for it.
        gone: those of them that are not there any more at the end.
        orphans: the names of the jobs that it took for nobody's, its own task being over.
        asked: what it asked for.
    """

    life: Life
    conclusion: JobOutcome | None
    created: Sequence[str]
    gone: Sequence[str]
    orphans: Sequence[str]
    asked: Sequence[Asked]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that was seen of one schedule.

    Attributes:
        schedule: which.
        seconds: how long it took.
        lives: the followers, one after the other.
        conclusion: of the last one; None if it never came.
        created: the names of all jobs that were ever created for the task.
        left: pods that still ran some time after the conclusion.
        written: how many lines of its first run rank 0 is known to have written, where somebody else looked.
        asked: what came through the proxy.
        gone: those of them that are not there any more at the end.
        neighbours_error: what ended the one who followed another job by the same watches.
        other: what the other installation did meanwhile, if there was one.
        problem: what kept the trial from its end.
    """

    schedule: Schedule
    seconds: float
    lives: Sequence[Life]
    conclusion: JobOutcome | None
    created: Sequence[str]
    left: Sequence[str]
    written: int
    asked: Sequence[Asked]
    gone: Sequence[str] = ()
    neighbours_error: str = ""
    other: OtherEvidence | None = None
    problem: str = ""


def described(error: BaseException) -> str:
    """Name an error that the product must not raise, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__}: {error} (at {places})"
