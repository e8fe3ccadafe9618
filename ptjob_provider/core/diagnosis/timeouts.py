"""Decide when a job that does not progress is given up.

    state of the pods                                                   given up
    -----------------------------------------------------------------   -----------------------------------
    invalid image name, image never pulled, program missing             at once
    image pull back-off, missing secret, stuck init, mount errors       after `start_timeout`
    the namespace's rules refuse its pods                               after `start_timeout`
    scheduled and not running, without a known problem                  after `start_timeout`
    the image is being pulled                                           never: the job progresses
    crash loop, evictions by the platform not counted                   after `crash_loop_limit` restarts
    unschedulable, quota, queued or suspended, no pods yet              after `queue_timeout`
    training exited with 0, a sidecar still runs                        after `sidecar_timeout`
    all pods have ended, one with a failure, and the job has not        after `start_timeout`

While an elastic job has as many running replicas as it needs, it is not given up because others do not start. When it
has too few again, all waits begin anew, and none ends it at once.

Times are measured by the clock of this process, from the first observation of the wait.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from ptjob_provider.core.containment import contained
from ptjob_provider.core.diagnosis.causes import CAUSES, Cause, Diagnosis, named
from ptjob_provider.core.diagnosis.classify import disrupted
from ptjob_provider.core.diagnosis.last_lines import clip
from ptjob_provider.core.diagnosis.root_cause import candidates_of, describe, root_of
from ptjob_provider.core.diagnosis.startup_failure import not_placed, not_started
from ptjob_provider.core.history import WaitKind
from ptjob_provider.core.status import JobPhase, later

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from ptjob_provider.core.history import PodHistory, Restarts
    from ptjob_provider.core.status import JobStatus

_MINUTE = 60
_PREEMPTIONS = 3
_NO_OPERATOR = "See whether the controller of its kind runs (ptjob doctor); a retry waits again"
_WITHOUT_ISTIO = (
    'Give its pods the annotation sidecar.istio.io/inject: "false", in the metadata of each pod template, not of the '
    "job; a retry would fail the same way"
)
_STARTING = {WaitKind.STUCK, WaitKind.STARTING, WaitKind.INIT, WaitKind.FORBIDDEN}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a job; waits are in seconds by the clock of this process, None for no limit.

    Attributes:
        start_timeout: from the scheduling of a pod until its containers run; 20 minutes outlast a registry's restart.
        queue_timeout: until every pod is scheduled; by default no limit, as queues are normal on a busy cluster.
        crash_loop_limit: number of restarts in a row, without a run of ten minutes between them.
        sidecar_timeout: from the success of the training containers until the other containers end.
        max_preemptions: number of ends by the platform after which the job gets a new attempt; None: not decided.
        no_progress_limit: number of attempts in a row without a new step after which none follows; 0 for no limit.
    """

    start_timeout: float | None = 1200.0
    queue_timeout: float | None = None
    crash_loop_limit: int | None = 5
    sidecar_timeout: float | None = 300.0
    max_preemptions: int | None = None
    no_progress_limit: int = 2

    def with_default_preemptions(self, *, is_wanted: bool) -> Self:
        """Return the limits with the default of `max_preemptions`: 3 where a new attempt is wanted, else 0.

        It is wanted of a job that declares checkpoints, and where the orchestrator retries a failure.
        """
        if self.max_preemptions is not None:
            return self
        return replace(self, max_preemptions=_PREEMPTIONS if is_wanted else 0)


@dataclass(frozen=True, kw_only=True, order=True)
class Clock:
    """A limit whose time runs, and when it ends; clocks sort by their end."""

    ends_at: datetime
    seconds: float
    name: str


@contained(lambda *_: None)
def ending(
    history: PodHistory,
    status: JobStatus,
    *,
    now: datetime,
    limits: Limits,
    ranks: Mapping[str, int] | None = None,
    least: int | None = None,
) -> Diagnosis | None:
    """Return why the job is given up now; None while waiting may help, or if the job has ended.

    An elastic job trains with `least` replicas, another one with all of them (None).
    """
    if status.phase.is_terminal:
        return None
    ranks, history = ranks or {}, needed(history, least)
    return (
        _broken(history, ranks)
        or _crash_loop(history, limits.crash_loop_limit, ranks)
        or _unstarted(history, now, limits.start_timeout, ranks)
        or _queued(history, status, now, limits.queue_timeout, ranks)
        or _sidecar(history, now, limits.sidecar_timeout, ranks)
        or _over(history, now, limits.start_timeout, ranks)
    )


def needed(history: PodHistory, least: int | None) -> PodHistory:
    """Return the history without the waits of replicas that the job does without, while `least` others run.

    While too few run of a training that has run, a replica that cannot start has the start timeout: the others may be
    about to run again.
    """
    if history.has_enough(least):
        crashes = tuple(wait for wait in history.waiting if wait.kind is WaitKind.CRASH_LOOP)
        return replace(history, waiting=crashes, queued_since=None)
    if least is None or history.first_running_at is None:
        return history
    stuck = (replace(wait, kind=WaitKind.STUCK) if wait.kind is WaitKind.BROKEN else wait for wait in history.waiting)
    return replace(history, waiting=tuple(stuck))


def ends_at(history: PodHistory, *, now: datetime, limits: Limits, least: int | None = None) -> datetime | None:
    """Return the next instant after `now` at which the result of `ending` may change without a new observation."""
    ends = (clock.ends_at for clock in clocks(needed(history, least), limits))
    return min((instant for instant in ends if instant > now), default=None)


def clocks(history: PodHistory, limits: Limits) -> Iterator[Clock]:
    """Yield the limits whose time runs while the job stays in this state.

    An init container may only wait for another replica, so no limit runs for it while another replica is blocked.
    """
    is_blocked = any(wait.kind not in {WaitKind.INIT, WaitKind.SIDECAR} for wait in history.waiting)
    for wait in history.waiting:
        if wait.kind in _STARTING and not (is_blocked and wait.kind is WaitKind.INIT):
            yield from _clock(wait.since, limits.start_timeout, "start timeout")
        elif wait.kind is WaitKind.SIDECAR:
            yield from _clock(wait.since, limits.sidecar_timeout, "sidecar timeout")
        elif wait.kind is WaitKind.OVER and _has_failed(history):
            yield from _clock(wait.since, limits.start_timeout, "start timeout")
    if history.queued_since is not None:
        yield from _clock(history.queued_since, limits.queue_timeout, "queue timeout")


def _clock(since: datetime, seconds: float | None, name: str) -> Iterator[Clock]:
    if seconds is not None and (ends_at := later(since, seconds)) is not None:
        yield Clock(ends_at=ends_at, seconds=seconds, name=name)


def _broken(history: PodHistory, ranks: Mapping[str, int]) -> Diagnosis | None:
    broken = [wait for wait in history.waiting if wait.kind is WaitKind.BROKEN]
    return not_started(broken, "cannot start", ranks) if broken else None


def _unstarted(history: PodHistory, now: datetime, timeout: float | None, ranks: Mapping[str, int]) -> Diagnosis | None:
    late = [wait for wait in history.waiting if wait.kind in _STARTING and _has_passed(wait.since, now, timeout)]
    return not_started(late, f"did not start within {duration(timeout)}", ranks) if late else None


def _crash_loop(history: PodHistory, limit: int | None, ranks: Mapping[str, int]) -> Diagnosis | None:
    if limit is None or not any(_loops(history, counts, limit) for counts in history.restart_counts):
        return None
    candidates = candidates_of(history)
    root = root_of(history, candidates, ranks)
    if root is None:
        return Diagnosis.of(Cause.CRASH_LOOP, f"its containers were restarted {history.restarts} times")
    diagnosis = describe(history, root, candidates, ranks=ranks)
    so_far = " so far" if diagnosis.retryable else ""
    advice = f"{diagnosis.resolution.partition(';')[0]}; restarting it did not help{so_far}"
    return replace(diagnosis, cause=Cause.CRASH_LOOP, resolution=advice, passes=False)


def _loops(history: PodHistory, counts: Restarts, limit: int) -> bool:
    if counts.in_a_row - _taken_away(history, counts) < limit:
        return False
    container = (counts.replica, counts.container)
    waits = any(wait.replica == counts.replica and wait.kind is WaitKind.CRASH_LOOP for wait in history.waiting)
    return waits or any(
        (end.replica, end.container) == container and end.run == counts.total and end.failed and not end.stopped
        for end in history.terminations
    )


def _taken_away(history: PodHistory, counts: Restarts) -> int:
    """Return how many of the pods since the last long run the platform has ended; a pod may have crashed before."""
    ends = (end for end in history.terminations if (end.replica, end.container) == (counts.replica, counts.container))
    failed = (end for end in ends if end.run >= counts.settled and end.failed and not end.stopped)
    return len({end.pod_uid for end in failed if end.disruption and disrupted(end.disruption).is_by_platform})


def _queued(
    history: PodHistory, status: JobStatus, now: datetime, timeout: float | None, ranks: Mapping[str, int]
) -> Diagnosis | None:
    if history.queued_since is None or not _has_passed(history.queued_since, now, timeout):
        return None
    for kind in (WaitKind.REFUSED, WaitKind.QUEUED):
        wait = next((wait for wait in history.waiting if wait.kind is kind), None)
        if wait is not None:
            return not_placed(wait, f"had no place after {duration(timeout)}", ranks)
    if status.phase is JobPhase.RUNNING:  # its pods run, although none of them was observed
        return None
    if not status.is_taken_up:
        text = f"no operator has taken it up within {duration(timeout)}"
        return Diagnosis.of(Cause.QUEUED, text, resolution=_NO_OPERATOR)
    word = "suspended" if status.phase is JobPhase.SUSPENDED else "without pods"
    why = f"; its queue says: {clip(history.queue)}" if history.queue and word == "suspended" else ""
    return Diagnosis.of(Cause.QUEUED, f"it was still {word} after {duration(timeout)}{why}")


def _sidecar(history: PodHistory, now: datetime, timeout: float | None, ranks: Mapping[str, int]) -> Diagnosis | None:
    late = [wait for wait in history.waiting if wait.kind is WaitKind.SIDECAR and _has_passed(wait.since, now, timeout)]
    if history.running or not late:
        return None
    wait = late[0]
    who = named(wait.replica, ranks)
    text = f"{who} finished its training, but its container {wait.container} still ran {duration(timeout)} later"
    advice = _WITHOUT_ISTIO if wait.container == "istio-proxy" else CAUSES[Cause.SIDECAR].advice
    return Diagnosis.of(Cause.SIDECAR, text, resolution=advice, replica=wait.replica)


def _over(history: PodHistory, now: datetime, timeout: float | None, ranks: Mapping[str, int]) -> Diagnosis | None:
    """Diagnose a job whose pods have failed, and whose controller leaves it so.

    The training-operator before 1.8 does that after an exit code that its policy ExitCode counts as final (#2044).
    """
    late = any(wait.kind is WaitKind.OVER and _has_passed(wait.since, now, timeout) for wait in history.waiting)
    candidates = candidates_of(history)
    root = root_of(history, candidates, ranks)
    if not late or root is None or not _has_failed(history):
        return None
    diagnosis = describe(history, root, candidates, ranks=ranks)
    return replace(diagnosis, summary=f"{diagnosis.summary}; no controller ended the job within {duration(timeout)}")


def _has_failed(history: PodHistory) -> bool:
    return any(end.failed and not history.is_superseded(end) for end in history.terminations)


def _has_passed(since: datetime, now: datetime, timeout: float | None) -> bool:
    return timeout is not None and (now - since).total_seconds() >= timeout


def duration(seconds: float | None) -> str:
    """Format a duration: `20 min`, `90 s`."""
    whole = round(seconds or 0)
    return f"{whole // _MINUTE} min" if whole and whole % _MINUTE == 0 else f"{whole} s"
