"""Collect what people are told about one followed job: how far its training is, its replicas, its earlier attempts.

Pure. The lines and the observations are those that the follower has anyway.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections import deque
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core.containment import contained
from ptjob_provider.core.curve import Curve
from ptjob_provider.core.diagnosis.last_lines import clip
from ptjob_provider.core.history import ContainerKind
from ptjob_provider.core.identity import CHECKPOINT_ANNOTATION, REPORTED_ANNOTATION, annotation_of
from ptjob_provider.core.logs import nanoseconds
from ptjob_provider.core.outputs.resumed import Steps, no_progress, sentence
from ptjob_provider.core.run.attempts import earlier_in
from ptjob_provider.core.status import JobPhase, parse_instant
from ptjob_provider.core.training_progress import Progress, ProgressReader, of_trainer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ptjob_provider.core.history import PodHistory, Termination
    from ptjob_provider.core.logs import LogCursor, LogLine
    from ptjob_provider.core.run.outcome import JobOutcome
    from ptjob_provider.core.run.progress import JobProgress
    from ptjob_provider.core.training_progress import LinePattern

T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_SIZE = 15 * 1024
"""Maximum characters of a state as JSON; an adapter adds the cursor of the log, and Airflow's database has 16 KiB."""

_REPLICAS_SIZE, _METRICS_SIZE = 6 * 1024, 1536
"""Maximum characters of these parts as JSON."""

_WAITS, _REASON = 300, 100
"""Maximum characters of texts."""

_LINES, _NEWEST, _SECONDS = 100, 50, 1.0
"""Maximum number of lines that are looked at in so many seconds. Of a log that is faster, so many of the newest ones
are looked at as well. Looking at a line takes several times as long as copying it."""

_STOPPED = "stopped with the job"


class TrainingState:
    """State of one followed job, for people who watch it.

    Args:
        pattern: the user's pattern for lines with progress; None: those that are built in.

    Attributes:
        known: what the follower has observed; None until it has begun.
        first_step: the first step that this attempt has reported; None if it has reported none.
        in_order: whether its steps only rose so far, below their total; see `resumed.Steps`.
        earlier: summaries of the task's earlier attempts, oldest first.
    """

    def __init__(self, pattern: LinePattern | None = None) -> None:
        self._pattern = pattern
        self.forget()

    def forget(self) -> None:
        """Forget the job, because the same try follows its next attempt."""
        self.known: JobProgress | None = None
        self.first_step: int | None = None
        self.in_order = True
        self.earlier: Sequence[Mapping[str, Any]] = ()
        self._reader: ProgressReader | None = None  # most followed jobs have no log yet
        self._late: deque[LogLine] = deque(maxlen=_NEWEST)
        self._lines_left, self._counts_until = _LINES, -math.inf
        self._curve = Curve()
        self._told: Progress | None = None
        self._read_until = 0
        self._resumed_at = ""
        self._is_broken = False
        self._checkpoint_step: int | None = None
        self._says_resumed = True

    @property
    def progress(self) -> Progress:
        """Return how far the training is: as its kind's operator reports it, else as rank 0's log says."""
        self._catch_up()
        read = self._reader.progress if self._reader else None
        return self._told or read or Progress()

    @property
    def version(self) -> tuple[object, ...]:
        """Return a value that differs once there is more to tell."""
        known = self.known
        return (self.progress, *((known.status.phase, known.waiting.reason, known.record) if known else ()))

    def take(self, line: LogLine) -> bool:
        """Take the next line of rank 0's log, and return whether it was looked at.

        A line that cannot be read ends the reading, and not the log.
        """
        now = time.monotonic()
        if now >= self._counts_until:
            self._lines_left, self._counts_until = _LINES, now + _SECONDS
            self._catch_up()
        if not self._lines_left:
            self._late.append(line)
            return False
        self._lines_left -= 1
        self._read(line)
        return True

    def _catch_up(self) -> None:
        while self._late:
            self._read(self._late.popleft())

    def _read(self, line: LogLine) -> None:
        if self._is_broken:
            return
        try:
            self._take(line)
        except Exception:
            self._is_broken, self.in_order = True, False
            logger.exception("the training's progress cannot be read any more; please report it")

    def _take(self, line: LogLine) -> None:
        if self._read_until and nanoseconds(line.timestamp) <= self._read_until and line.timestamp != self._resumed_at:
            return  # an earlier process has read it
        self._read_until = 0
        self._reader = self._reader or ProgressReader(self._pattern)
        before = self._reader.progress
        progress = self._reader.feed(line)
        if progress is not None and progress is not before and self._told is None:
            self._note(progress, before)

    @contained(lambda *_: None)
    def observe(self, job: Mapping[str, Any]) -> None:
        """Take the job's object: its operator may report the training's progress, which then counts alone."""
        self.earlier = self.earlier or earlier_in(job)
        step = annotation_of(job, CHECKPOINT_ANNOTATION)
        self._checkpoint_step = int(step) if re.fullmatch("[0-9]{1,12}", step) else None
        told = of_trainer(job)
        if told is None or told == self._told:
            return
        if self._told is None:
            self._curve, self.first_step = Curve(), None
        self._told = told
        self.in_order = False  # its steps are percent
        self._note(told, None)

    def _note(self, progress: Progress, before: Progress | None) -> None:
        self._curve.add(progress)
        step, reached = progress.step, before.step if before else None
        if (reached is not None and (step is None or step < reached)) or (step is not None and step == progress.total):
            self.in_order = False
        if self.first_step is None:
            self.first_step = progress.step

    def resume(self, stored: Mapping[str, Any], cursor: LogCursor | None) -> None:
        """Go on from the state that an earlier process has stored, which had written the log up to the cursor."""
        self._curve = Curve.from_dict(stored.get("curve"))
        self.first_step = stored.get("first_step")
        self.in_order = stored.get("in_order", not stored)
        self._says_resumed = self.first_step is None  # else that process has said it
        progress = Progress.from_dict(stored)
        if cursor is not None and progress.at:
            self._reader = ProgressReader(self._pattern)
            self._reader.resume(progress, cursor)
            self._read_until, self._resumed_at = nanoseconds(progress.at), cursor.timestamp

    def resumed(self) -> str:
        """Return where this attempt went on, once, as soon as it is known; "" before, afterwards, or if it is not."""
        if self.first_step is None or not self._says_resumed:
            return ""
        self._says_resumed = False
        return self.sentence

    @property
    def sentence(self) -> str:
        """Return where this attempt went on; "" if that is not known for sure, see `resumed.sentence`."""
        return sentence(self._steps, self._steps_before, step=self._checkpoint_step)

    def no_progress(self, limit: int) -> str:
        """Return why this attempt, which has failed, is the last one; "" if it is not, see `resumed.no_progress`."""
        return no_progress(self._steps, self._steps_before, limit=limit)

    @property
    def _steps(self) -> Steps:
        now = self.progress
        return Steps(
            attempt=self.known.submission.attempt if self.known else 0,
            first=self.first_step,
            last=now.step,
            total=now.total,
            rate=now.rate,
            in_order=self.in_order,
        )

    @property
    def _steps_before(self) -> list[Steps]:
        """Return the steps of the attempts since the task's last clear, after which a training begins anew."""
        since = parse_instant(self.known.submission.first_started_at) if self.known else None
        begun = ((each, parse_instant(str(each.get("started") or ""))) for each in self.earlier)
        return [Steps.of(each) for each, at in begun if since and at and at >= since]

    def annotations(self) -> dict[str, str]:
        """Return what was reported of the steps, for the job of a failed attempt; {} for none."""
        now = self._steps
        steps = {"first_step": now.first, "last_step": now.last, "rate": now.rate, "in_order": now.in_order}
        return {} if now.first is None else {REPORTED_ANNOTATION: json.dumps(steps)}

    @contained(lambda *_: {})
    def to_dict(self, outcome: JobOutcome | None = None) -> dict[str, Any]:
        """Return the state as JSON-safe fields, at most MAX_SIZE characters of JSON; {} before the first observation.

        Args:
            outcome: how the job ended; None while it is followed.
        """
        known, progress = self.known, self.progress
        if known is None:
            return {}
        phase = outcome.status.phase if outcome else known.status.phase
        why = (outcome and outcome.diagnosis) or known.noted
        rows = _rows(known, failed_first=why.replica if why else "", is_over=phase.is_terminal)
        shown = sorted(_fitting(rows, _REPLICAS_SIZE), key=lambda row: row["rank"])
        fields = {
            **progress.to_dict(),
            "uid": known.submission.ref.uid,
            "attempt": known.submission.attempt,
            "phase": phase.value,
            "waits": "" if phase.is_terminal else clip(known.waiting.reason, _WAITS),
            "metrics": {known.mask(tag): value for tag, value in _fitting(progress.metrics.items(), _METRICS_SIZE)},
            "first_step": self.first_step,
            "in_order": self.in_order,
            "resumed": self.sentence,
            "replicas": shown,
            "replicas_left_out": len(rows) - len(shown),
            "attempts": [dict(each) for each in self.earlier],
        }
        curve = self._curve.to_dict(most=MAX_SIZE - len(json.dumps(fields)))
        curve["metrics"] = {known.mask(tag): values for tag, values in curve["metrics"].items()}
        return {**fields, "curve": curve}


def _fitting(items: Iterable[T], most: int) -> list[T]:
    """Return the first of these items, as many as have at most `most` characters of JSON."""
    rows = [*items]
    sizes = accumulate(len(json.dumps(row)) + 2 for row in rows)
    return [row for row, _ in takewhile(lambda pair: pair[1] <= most, zip(rows, sizes, strict=True))]


def _rows(known: JobProgress, *, failed_first: str, is_over: bool) -> list[dict[str, Any]]:
    """Return a row for each replica, by rank, but the one that failed first before the others."""
    ranks, prefix = known.submission.ranks, f"{known.submission.ref.name}-"
    nodes = {name: (node, start) for name, node, start in known.pods.nodes}
    ends = _last_ends(known.pods)
    restarts: dict[str, int] = {}
    for entry in known.pods.restart_counts:
        restarts[entry.replica] = restarts.get(entry.replica, 0) + entry.total
    instants = known.status.to_dict()
    rows = []
    for name in sorted(ranks, key=lambda each: (each != failed_first, ranks[each])):
        node, start = nodes.get(name, ("", ""))
        row = {"name": name.removeprefix(prefix), "rank": ranks[name], "phase": "Pending", "node": node}
        row |= {"started": start, "ended": "", "exit_code": None, "reason": "", "restarts": restarts.get(name, 0)}
        if end := ends.get(name):
            row |= _end(end, start)
        elif name in known.pods.running:
            stopped = {"ended": instants["finished_at"] or "", "reason": _STOPPED} if is_over else {}
            row |= {"phase": JobPhase.RUNNING.value, **stopped}
        rows.append({**row, "failed_first": name == failed_first})
    return rows


def _last_ends(pods: PodHistory) -> dict[str, Termination]:
    """Return the last end of each replica's training container after which it was not started again."""
    training = (end for end in pods.terminations if end.kind is ContainerKind.TRAINING)
    return {end.replica: end for end in training if not pods.is_superseded(end)}


def _end(end: Termination, start: str) -> dict[str, Any]:
    return {
        "phase": (JobPhase.FAILED if end.failed else JobPhase.SUCCEEDED).value,
        "started": end.started_at.isoformat() if end.started_at else start,
        "ended": end.finished_at.isoformat() if end.finished_at else "",
        "exit_code": end.exit_code,
        "reason": clip(end.disruption or end.reason, _REASON),
    }
