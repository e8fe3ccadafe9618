"""Write notices about a job's pods for the task's log: why they do not run yet, what to do, how replicas ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from signal import SIGKILL
from typing import TYPE_CHECKING

from ptjob_provider.core.containment import contained
from ptjob_provider.core.diagnosis.causes import first_few
from ptjob_provider.core.diagnosis.classify import STOPS, classify, signal_of
from ptjob_provider.core.diagnosis.last_lines import clip, runtime_error
from ptjob_provider.core.diagnosis.root_cause import candidate_of
from ptjob_provider.core.diagnosis.startup_failure import WAITS_FOR_MASTER, advice_on
from ptjob_provider.core.diagnosis.timeouts import clocks, duration, needed
from ptjob_provider.core.history import ContainerKind, WaitKind
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ptjob_provider.core.diagnosis.timeouts import Limits
    from ptjob_provider.core.history import PodHistory, Termination, Waiting
    from ptjob_provider.core.status import JobStatus


PATIENCE = timedelta(seconds=5)
"""Age at which a wait is reported. Shorter waits are part of every job's start: the operator's init container looks
up the master every two seconds."""

_DOCTOR = "`ptjob doctor` tells whether one runs"
_CLOCKS = timedelta(seconds=5)
"""Tolerated difference between the clocks of two nodes, including the rounding of instants to whole seconds."""


@dataclass(kw_only=True)
class WaitingNotice:
    """Current reason why a job waits, and what was reported of it: each lasting reason is reported once.

    The outlook is reported once, too, because it mostly stays the same while reasons change.
    """

    reason: str = ""
    since: datetime | None = None
    reported: str = ""
    outlook: str = ""

    def update(self, reason: str, now: datetime) -> None:
        """Set the current reason; "" if the job does not wait."""
        if reason != self.reason:
            self.reason, self.since = reason, now

    def due(self) -> datetime | None:
        """Return when the current reason has to be reported; None if there is none or it was reported."""
        if not self.reason or self.reason == self.reported or self.since is None:
            return None
        return self.since + PATIENCE

    def is_due(self, now: datetime) -> bool:
        """Return whether the current reason has to be reported now."""
        due = self.due()
        return due is not None and now >= due

    def report(self, outlook: str) -> str:
        """Return the text about the current reason, with its outlook if the outlook is new, and mark it as reported."""
        self.reported = self.reason
        if outlook in {"", self.outlook}:
            return self.reason
        self.outlook = outlook
        return self.reason.rstrip(".") + outlook


@contained(lambda why, *_: f"why it waits cannot be read: {why}")
def waiting_reason(history: PodHistory, status: JobStatus, *, replicas: int, rank0: str) -> str:
    """Return why the job waits, in one line; "" if every replica runs or has run."""
    if status.phase.is_terminal:
        return ""
    if status.phase is JobPhase.SUSPENDED and history.queue:
        return f"suspended by its queue: {clip(history.queue)}"
    if status.phase is JobPhase.SUSPENDED:
        return "suspended: it waits for its queue, or for a person, to resume it"
    if any(wait.kind is WaitKind.OVER for wait in history.waiting):
        return f"all its pods have ended, and its controller has neither replaced one nor ended the job ({_DOCTOR})"
    there = len(history.running) + len(history.finished)
    if not history.waiting and there >= replicas:
        return _stranded(history, rank0)
    reasons = _grouped(history) or ([] if history.placed else [_unmade(status)])
    counts = _counts(history, replicas)
    return f"{counts}; {'; '.join(reasons)}" if reasons else counts


def _unmade(status: JobStatus) -> str:
    """Say that no pods exist yet; a job without a status was not noticed by its kind's controller."""
    why = "" if status.is_taken_up else f": no operator has taken the job up ({_DOCTOR})"
    return f"no pods were made yet{why}"


def _stranded(history: PodHistory, rank0: str) -> str:
    """Name the replicas that were restarted after rank 0 had succeeded and still run; such a job may never end.

    This happens if a TrainJob's runtime restarts single containers: their processes wait for rank 0's address.
    """
    trained = [end for end in history.terminations if end.kind is ContainerKind.TRAINING]
    over = [end.ended_at for end in trained if end.replica == rank0 and not end.failed]
    if not over or rank0 not in history.finished:
        return ""
    late = {end.replica for end in trained if end.failed and over[-1] - end.ended_at <= _CLOCKS} & {*history.running}
    if not late:
        return ""
    first, who = min(late), "it was" if len(late) == 1 else f"{', '.join(first_few(sorted(late)))} were"
    failure = [end for end in trained if end.failed and end.replica == first][-1]
    again = f"{who} started again after {rank0} (rank 0) had ended, and may wait for it for ever"
    return f"{first} {candidate_of(failure).classified.text()}; {again}; delete the job if it does not get on"


def _counts(history: PodHistory, replicas: int) -> str:
    if len(history.placed) < replicas:
        return f"{len(history.placed)} of {replicas} placed"
    return f"{len(history.running) + len(history.finished)} of {replicas} running"


def _grouped(history: PodHistory) -> list[str]:
    groups: dict[str, list[str]] = {}
    for wait in history.waiting:
        groups.setdefault(_reason(history, wait), []).append(wait.replica)
    return [f"{_who(replicas)}{reason}" for reason, replicas in groups.items()]


def _who(replicas: list[str]) -> str:
    names = [name for name in replicas if name]
    return f"{', '.join(first_few(names))}: " if names else ""


def _reason(history: PodHistory, wait: Waiting) -> str:
    """Describe one wait, without parts that change by themselves, such as the kubelet's back-off."""
    if wait.kind is WaitKind.CRASH_LOOP:
        return _crash(history, wait)
    if wait.kind is WaitKind.SIDECAR:
        return f"training has finished, container {wait.container} still runs"
    if wait.kind is WaitKind.INIT:
        is_operators = wait.container == WAITS_FOR_MASTER
        return "waiting for the master" if is_operators else f"init container {wait.container} runs"
    if wait.kind in {WaitKind.QUEUED, WaitKind.PULLING} and wait.message:
        return clip(wait.message)
    if wait.kind in {WaitKind.REFUSED, WaitKind.FORBIDDEN}:
        return f"not created: {wait.in_vain or clip(wait.message)}"
    return f"{wait.reason}: {runtime_error(wait.message)}" if wait.message else wait.reason or "is being started"


def _crash(history: PodHistory, wait: Waiting) -> str:
    counts = history.restarts_of(wait.replica, wait.container)
    total = counts.total if counts else 0
    times = f"{total} restart{'' if total == 1 else 's'} so far"
    own = (wait.replica, wait.container)
    last = next(
        (end for end in reversed(history.terminations) if end.failed and (end.replica, end.container) == own), None
    )
    return f"{candidate_of(last).classified.text()}; {times}" if last else f"crash loop, {times}"


def outlook(
    history: PodHistory, *, limits: Limits | None, deadline: datetime | None = None, least: int | None = None
) -> str:
    """Return the end of a sentence about the wait: `. Ask for less or free a node; there is no time limit`.

    Args:
        history: the history of the job's pods.
        limits: maximum waits after which the job is given up; None for another owner's job, whose limits are unknown.
        deadline: when the job is stopped in any case; None for never.
        least: number of replicas with which an elastic job trains; None for all.
    """
    if not history.waiting and history.queued_since is None:
        return ""
    advice = advice_on(history.waiting)
    until = _until(needed(history, least), limits, deadline) if limits else ""
    return (f". {advice}" if advice else "") + (f"; {until}" if until else "")


def _until(history: PodHistory, limits: Limits, deadline: datetime | None) -> str:
    kinds = {wait.kind for wait in history.waiting}
    if WaitKind.BROKEN in kinds:
        return "given up at once"
    first = min(clocks(history, limits), default=None)
    if deadline is not None and (first is None or deadline < first.ends_at):
        return f"waited for until the deadline, {deadline.isoformat(sep=' ', timespec='seconds')}"
    if WaitKind.CRASH_LOOP in kinds and limits.crash_loop_limit is not None:
        return f"given up after {limits.crash_loop_limit} restarts in a row"
    return f"given up after {duration(first.seconds)} ({first.name})" if first else "there is no time limit"


QUOTED = "    "
"""Prefix of each quoted line of a log."""


class EndNotices:
    """Writes one notice for each failed run of a replica; a replica may fail and be restarted many times."""

    def __init__(self, *, besides: str) -> None:
        """Exclude the replica `besides`, whose whole log is in the task's log."""
        self.besides = besides
        self._reported: set[str] = set()

    def of(
        self, ends: Iterable[Termination], *, after_success: bool = False, over_at: datetime | None = None
    ) -> list[str]:
        """Return a notice for each new end: how the replica ended, and its last lines.

        Args:
            ends: ends of containers.
            after_success: the job has succeeded, so replicas that were stopped are not reported.
            over_at: when the job failed; None if it has not.
        """
        stops = STOPS if after_success else set()
        new = [end for end in ends if self._is_new(end) and signal_of(end) not in stops]
        self._reported |= {end.key for end in new}
        return [_text(end, over_at) for end in new]

    def _is_new(self, end: Termination) -> bool:
        is_death = end.failed and not end.stopped and end.kind is ContainerKind.TRAINING
        return is_death and end.replica != self.besides and end.key not in self._reported


def restarts_of(replica: str, before: PodHistory, after: PodHistory) -> list[str]:
    """Return why a replica was started again since an earlier history; its own log does not name an eviction."""
    known = {end.key for end in before.terminations if before.is_superseded(end)}
    ends = (end for end in after.terminations if end.replica == replica and end.kind is ContainerKind.TRAINING)
    new = (end for end in ends if end.failed and after.is_superseded(end) and end.key not in known)
    how = (classify(end, end.message.splitlines()).text().rstrip(".") for end in new)
    return [f"{replica} {did}; it is started again" for did in how]


def never_ran(before: PodHistory, after: PodHistory) -> str:
    """Return the replicas that waited at an earlier time and have not run since, with their reasons; "" for none."""
    waiting = tuple(wait for wait in before.waiting if wait.replica and not after.has_run(wait.replica))
    return "; ".join(_grouped(replace(before, waiting=waiting)))


def is_clean_up(end: Termination, over_at: datetime | None) -> bool:
    """Return whether the operator has stopped the replica because the job had failed at `over_at`."""
    by_signal = signal_of(end) in {SIGKILL, *STOPS} and end.reason != "OOMKilled"
    return by_signal and over_at is not None and end.ended_at > over_at


def _text(end: Termination, over_at: datetime | None) -> str:
    lines = end.message.strip("\n").splitlines()
    how = "was stopped after the job's end" if is_clean_up(end, over_at) else classify(end, lines).did
    what = f"{end.replica} {how}"
    return f"\n{QUOTED}".join([f"{what}; its last lines:", *lines]) if lines else what
