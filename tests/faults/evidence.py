"""Observations of a trial, as values; `judgement` judges them."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faults.proxy import Asked
    from faults.schedule import Schedule
    from ptjob_provider.core.logs import LogCursor, LogLine
    from ptjob_provider.core.run.outcome import JobOutcome


_REPEATED = "may be repeated"


@dataclass(kw_only=True)
class Life:
    """Life of one follower, and the sink for its output.

    Attributes:
        began_with: cursor at the start.
        began_after: log line at that cursor; "" at the start of the log.
        lines: log lines of rank 0 that it reported.
        notices: notices that it reported, about the job and about the log.
        error: error that ended it; "" if it was stopped or finished.
    """

    began_with: LogCursor | None = None
    began_after: str = ""
    lines: list[LogLine] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    error: str = ""

    def line(self, line: LogLine) -> None:
        """Store a log line of rank 0, or a notice about the log."""
        if line.notice:
            self.notices.append(line.text)
        else:
            self.lines.append(line)

    def notice(self, text: str) -> None:
        """Store a notice about the job."""
        self.notices.append(text)

    async def room(self) -> None:
        """Return at once: there is always room."""

    def next(self, *, keeps_cursor: bool) -> Life:
        """Return the follower that comes next; it starts after the last line, or half-way through this one's lines."""
        kept = len(self.lines) if keeps_cursor else len(self.lines) // 2
        if not kept:
            return Life(began_with=self.began_with, began_after=self.began_after)
        return Life(began_with=self.lines[kept - 1].cursor, began_after=self.lines[kept - 1].text)

    def in_order(self) -> list[str]:
        """Return the lines without announced repeats: later lines may precede both runs, read from the start."""
        texts = [line.text for line in self.lines]
        if not any(_REPEATED in notice for notice in self.notices):
            return texts
        places = [tuple(map(int, text.removeprefix("run ").split(" line "))) for text in texts]
        again = max((place for place, (one, next_) in enumerate(pairwise(places), 1) if next_ <= one), default=0)
        known = texts.index(self.began_after, again) + 1 if self.began_after in texts[again:] else again
        return texts[known:]


@dataclass(frozen=True, kw_only=True)
class OtherEvidence:
    """Observations of another installation's task with the same ids; its requests have no faults.

    Attributes:
        life: its one follower.
        conclusion: outcome of its job; None if there was none.
        created: names of all jobs ever created for the task.
        gone: names of those jobs that no longer exist at the end.
        orphans: names of the jobs that it considered orphaned after its own task had ended.
        asked: requests that it sent.
    """

    life: Life
    conclusion: JobOutcome | None
    created: Sequence[str]
    gone: Sequence[str]
    orphans: Sequence[str]
    asked: Sequence[Asked]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All observations of one schedule.

    Attributes:
        schedule: the schedule.
        seconds: duration of the trial.
        lives: the followers, one after the other.
        conclusion: outcome that the last follower returned; None if there was none.
        created: names of all jobs ever created for the task.
        left: pods that still ran some time after the outcome.
        written: lines of the first run that rank 0 is known to have written; counted only if the trial reads the log.
        asked: requests that passed the proxy.
        gone: names of the created jobs that no longer exist at the end.
        neighbours_error: error of the follower of another job that shares the watches.
        other: observations of the other installation, if there is one.
        problem: reason why the trial did not finish.
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
    """Describe an error that the product must not raise, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__}: {error} (at {places})"
