"""Find which replicas failed by themselves, which of them first and why, and build diagnoses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.diagnosis.causes import (
    ADVICE,
    RESUMES,
    Cause,
    Diagnosis,
    bounded_tail,
    by_rank,
    first_few,
    named,
)
from ptjob_provider.core.diagnosis.classify import STOPS, Classification, classify, disrupted, signal_of
from ptjob_provider.core.diagnosis.last_lines import clip, lines_of, without_agent_lines
from ptjob_provider.core.diagnosis.startup_failure import WAITS_FOR_MASTER, held_up
from ptjob_provider.core.history import ContainerKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.history import PodHistory, Removal, Termination
    from ptjob_provider.core.outputs.contract import OutputProblem
    from ptjob_provider.core.status import JobStatus

PROPAGATION = timedelta(seconds=60)
"""Maximum lead of a consequence's timestamp over its cause's.

Instants have whole seconds and come from different nodes. A peer notices the closed socket when the process dies, but
torchrun waits up to 30 s for its other children before its container ends."""


_NO_LOG = {"StartError", "ContainerCannotRun", "ContainerStatusUnknown"}
"""Reasons for which the kubelet's message is not the end of a log."""
_DELETED = Classification(
    cause=Cause.TERMINATED,
    did="was stopped",
    detail="its pod was deleted, and not by the job's operator",
    resolution=f"Run it again; {RESUMES}",
)
_TRAINERS_DEADLINE = "DeadlineExceeded"
"""Reason why a TrainJob has failed; training-operator gives it in the message alone."""
_FOLLOW = f"{ADVICE[Cause.UNKNOWN][0]}; follow the next one (ptjob follow)"
_OWN_REASONS = {Cause.PYTHON_EXCEPTION, Cause.GPU_OUT_OF_MEMORY, Cause.SHARED_MEMORY, Cause.OUT_OF_MEMORY}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One container's end with its classified."""

    end: Termination
    classified: Classification
    lines: tuple[str, ...]

    @property
    def is_consequence(self) -> bool:
        """Return whether it may have ended because another replica did.

        A disruption is a cause of its own, and so is an error printed before the program was stopped.
        """
        return not self.end.disruption and (self._was_stopped or self.classified.is_consequence)

    @property
    def was_only_stopped(self) -> bool:
        """Return whether it has no cause of its own, like a replica that is stopped because rank 0 has ended."""
        return not self.end.disruption and (self._was_stopped or signal_of(self.end) in STOPS)

    @property
    def _was_stopped(self) -> bool:
        return self.end.stopped and self.classified.cause not in _OWN_REASONS


def diagnose(
    history: PodHistory,
    status: JobStatus,
    *,
    ranks: Mapping[str, int],
    tails: Mapping[str, Sequence[str]] | None = None,
) -> Diagnosis:
    """Diagnose a failed job.

    Args:
        history: the history of its pods.
        status: its status.
        ranks: pod name → rank.
        tails: pod name → the last lines of its log, where more is known than the history holds.
    """
    candidates = candidates_of(history, tails, over_at=status.finished_at)
    of_whole_job = _from_status(status)
    if of_whole_job is not None:
        return _with_stopped(of_whole_job, history, candidates, ranks)
    root = root_of(history, candidates, ranks)
    removed = _first_removal(history, root)
    if removed is not None:
        return _removed(removed, history, candidates, ranks)
    if root is None:
        return _unseen(history, status)
    if root.end.container == WAITS_FOR_MASTER:
        if history.held_up:
            return _gave_up(history, root, ranks)
        if not history.has_run(min(ranks, key=lambda name: ranks[name], default="")):
            return _gave_up_unseen(root, ranks)
    return describe(history, root, candidates, ranks=ranks, limit=_backoff(status))


def _gave_up(history: PodHistory, root: Candidate, ranks: Mapping[str, int]) -> Diagnosis:
    """Diagnose a master that did not start: a worker's init container fails after waiting too long for it."""
    gave_up = f"did not start, and {named(root.end.replica, ranks)} gave up waiting for it"
    return held_up(history.held_up, gave_up, ranks)


def _gave_up_unseen(root: Candidate, ranks: Mapping[str, int]) -> Diagnosis:
    """Diagnose a master that did not start for an unknown reason."""
    unknown = "and nothing tells any more why it did not start"
    return Diagnosis.of(
        Cause.START_TIMEOUT,
        f"{named(root.end.replica, ranks)} gave up waiting for the master, {unknown}",
        replica=root.end.replica,
    )


def _first_removal(history: PodHistory, root: Candidate | None) -> Removal | None:
    """Return the first removed pod, if no replica failed by itself before.

    Instants have whole seconds, and the operator's events about its own deletions may be late: of two removals in one
    second, the one with a reason was first.
    """
    first = min(history.removals, key=lambda one: (one.asked_at, not one.disruption), default=None)
    if first is None or root is None:
        return first
    return first if root.is_consequence and first.asked_at <= root.end.ended_at else None


def _removed(
    removed: Removal, history: PodHistory, candidates: Sequence[Candidate], ranks: Mapping[str, int]
) -> Diagnosis:
    name = removed.replica
    classified = disrupted(removed.disruption) if removed.disruption else _DELETED
    resolution, retryable = classified.advice
    others = [one for one in candidates if one.end.replica != name and not history.is_superseded(one.end)]
    lines = next((one.lines for one in candidates if one.end.pod_uid == removed.pod_uid), ())
    return Diagnosis(
        cause=classified.cause,
        summary=f"{named(name, ranks)} {classified.text()}",
        resolution=resolution,
        retryable=retryable,
        passes=classified.passes,
        replica=name,
        collateral=_replicas(others, ranks),
        unstarted=_replicas(_unstarted(history, others), ranks),
        log_tail=bounded_tail(without_agent_lines(lines)),
    )


def needs_events(history: PodHistory, status: JobStatus, *, ranks: Mapping[str, int]) -> bool:
    """Return whether later events may change the diagnosis of a failed job.

    Either a replica gave up waiting for the master and no reason was observed, or one was only stopped: the operator
    deletes the others after it has failed the job, and reports that last.
    """
    gave_up = any(end.failed and end.container == WAITS_FOR_MASTER for end in history.terminations)
    return (gave_up and not history.held_up) or diagnose(history, status, ranks=ranks).cause is Cause.TERMINATED


def candidates_of(
    history: PodHistory, tails: Mapping[str, Sequence[str]] | None = None, *, over_at: datetime | None = None
) -> list[Candidate]:
    """Interpret every failed end of the history; a log's tail belongs to the last run of its replica.

    The job failed at `over_at`.
    """
    failed = [end for end in history.terminations if end.failed]
    all_tails = tails or {}
    candidates = [
        _candidate(end, () if history.is_superseded(end) else all_tails.get(end.replica, ())) for end in failed
    ]
    removed = [one.asked_at for one in history.removals]
    since = min([*removed, *([over_at] if over_at else [])]) if removed else None
    return [_stopped_since(since, one) for one in candidates] if since else candidates


def _stopped_since(removed_at: datetime, one: Candidate) -> Candidate:
    """Treat an end without a cause of its own as a stop if it came after the first removal.

    When a pod is deleted, the operator fails the job and deletes the others. The last observation of one of them may be
    the first that shows it terminating, and the kubelet has then overwritten the time of the deletion request.
    """
    has_reason = one.classified.cause is not Cause.KILLED and not one.classified.is_vague
    if has_reason or one.end.ended_at <= removed_at:
        return one
    return replace(one, end=replace(one.end, stopped=True))


def root_of(history: PodHistory, candidates: Sequence[Candidate], ranks: Mapping[str, int]) -> Candidate | None:
    """Return the root cause, the end that the others follow from; None if nothing failed by itself.

    Each container's last end counts. The first by time is the cause, unless it only lost its connection or was stopped
    and an end with a cause of its own follows within PROPAGATION. If the last ends are all consequences, the runs
    before them in the same crash loop are checked, and the first of the latest ones counts: earlier failures were
    recovered from. Ties within one second: the replica whose previous run ended first, then the lower rank. Of
    consequences alone, one whose pod the operator has not deleted comes first.
    """
    earlier_ends = _earlier_ends(candidates)
    ordered = sorted(
        _weighty(candidates), key=lambda one: (earlier_ends[one.end.key], ranks.get(one.end.replica, len(ranks)))
    )
    last = [one for one in ordered if not history.is_superseded(one.end)]
    causes = [one for one in last if not one.is_consequence]
    victims = [one for one in last if one.is_consequence and not one.end.stopped]
    victims.sort(key=lambda one: one.end.replica in history.operator_deleted)
    if not causes:
        earlier = [one for one in ordered if not one.is_consequence and _is_in_loop(history, one.end)]
        return _latest(earlier) if earlier else next(iter(victims), None)
    if victims and causes[0].end.ended_at - victims[0].end.ended_at > PROPAGATION:
        return victims[0]
    return _clearest(causes)


def _weighty(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Ignore sidecars if there is anything else: sidecars that the kubelet stops at a pod's end fail as well."""
    return [one for one in candidates if one.end.kind is not ContainerKind.SIDECAR] or candidates


def _clearest(causes: Sequence[Candidate]) -> Candidate:
    """Return the first, or the first with an explanation if it follows the unexplained first one soon.

    A log's end of 2 KiB may hold only torchrun's own lines; a peer's log may still have the explanation.
    """
    first = causes[0]
    clear = (
        one for one in causes if not one.classified.is_vague and one.end.ended_at - first.end.ended_at <= PROPAGATION
    )
    return next(clear, first)


def _latest(causes: Sequence[Candidate]) -> Candidate:
    """Return the first explained one of the runs that ended together last, else the last explained one before them.

    Together are the last end and those that came during its run, within PROPAGATION: restarted replicas lose each other
    once in every run.
    """
    last = causes[-1].end
    near = [one for one in causes if last.ended_at - one.end.ended_at <= PROPAGATION]
    newest = {(one.end.replica, one.end.container): one for one in near}
    together = [
        one for one in near if one in newest.values() and one.end.ended_at >= (last.started_at or last.ended_at)
    ]
    return next((one for one in [*together, *reversed(near)] if not one.classified.is_vague), together[0])


def _earlier_ends(candidates: Sequence[Candidate]) -> dict[str, list[datetime]]:
    """Return for each end, by key, its time and the ends of its container's earlier runs, last first."""
    runs: dict[tuple[str, str], list[Termination]] = {}
    for one in sorted(candidates, key=lambda one: one.end.run):
        runs.setdefault((one.end.replica, one.end.container), []).append(one.end)
    return {
        end.key: [before.ended_at for before in ends[number::-1]]
        for ends in runs.values()
        for number, end in enumerate(ends)
    }


def describe(
    history: PodHistory,
    root: Candidate,
    candidates: Sequence[Candidate],
    *,
    ranks: Mapping[str, int],
    limit: str = "",
) -> Diagnosis:
    """Build the diagnosis from the root cause, and name the replicas that followed."""
    resolution, retryable = root.classified.advice
    others = [one for one in candidates if one.end.replica != root.end.replica and not history.is_superseded(one.end)]
    followers = [one for one in others if _follows(one, root)]
    return Diagnosis(
        cause=root.classified.cause,
        summary=_summary(history, root, ranks, limit),
        resolution=resolution,
        retryable=retryable,
        passes=root.classified.passes,
        exception=root.classified.exception,
        replica=root.end.replica,
        collateral=_replicas(followers, ranks),
        unstarted=_replicas(_unstarted(history, followers), ranks),
        also_failed=_replicas((one for one in others if one not in followers), ranks),
        log_tail=bounded_tail(without_agent_lines(root.lines)),
    )


def deleted(history: PodHistory, *, ranks: Mapping[str, int]) -> Diagnosis:
    """Diagnose a job that was deleted, with what was observed of it before."""
    return _after(history, ranks, Cause.DELETED, "somebody deleted it before it had ended")


def timed_out(history: PodHistory, *, ranks: Mapping[str, int], waiting: str = "", is_gone: bool = False) -> Diagnosis:
    """Diagnose a job that was unfinished at our deadline; `waiting` is its wait at that time.

    `is_gone`: it was deleted before it was observed past its deadline.
    """
    what = f"it was still waiting at the deadline ({waiting})" if waiting else "it was unfinished at the deadline"
    if is_gone:
        what = "its deadline has passed, and it was deleted before it was seen to end"
    diagnosis = _after(history, ranks, Cause.TIMED_OUT, what)
    return diagnosis if diagnosis.replica else _with_stopped(diagnosis, history, (), ranks)


def outputs_failed(problems: Sequence[OutputProblem], *, replica: str = "") -> Diagnosis:
    """Diagnose a training that ended without its declared outputs; `replica` is rank 0, their writer."""
    defects = "; ".join(problem.summary for problem in problems)
    advice = "; ".join(dict.fromkeys(problem.resolution for problem in problems))
    summary = f"{named(replica, {replica: 0}) if replica else 'it'} ran to its end, but {defects}"
    return Diagnosis.of(
        Cause.OUTPUTS,
        summary,
        replica=replica,
        resolution=f"{advice[:1].upper()}{advice[1:]}; a retry would fail the same way",
    )


def _candidate(end: Termination, tail: Sequence[str]) -> Candidate:
    message = () if _is_kubelets(end) else lines_of(end.message)
    lines = tuple(tail) if end.kind is ContainerKind.TRAINING and _reaches(tail, message) else message
    classified = classify(end, lines)
    if end.kind is ContainerKind.INIT and classified.cause is Cause.EXIT_CODE:
        classified = replace(classified, cause=Cause.INIT, resolution="", retryable=None)
    return Candidate(end=end, classified=classified, lines=lines)


def _is_kubelets(end: Termination) -> bool:
    """Return whether the message is not a log's end: an evicted pod's log may be gone before the kubelet reads it."""
    return end.reason in _NO_LOG or end.message.startswith("Error on reading termination message from logs")


def _reaches(tail: Sequence[str], message: Sequence[str]) -> bool:
    """Return whether a log that was read contains the kubelet's last line of it; else it broke off before."""
    return not message or any(line.endswith(message[-1]) for line in tail)


def _from_status(status: JobStatus) -> Diagnosis | None:
    if status.reason == "SupervisorLost":
        return Diagnosis.of(Cause.SUPERVISOR_LOST, clip(status.message) or "the process that ran its replicas is gone")
    if status.reason == _TRAINERS_DEADLINE or "active longer than specified deadline" in status.message:
        limit = f" ({status.time_limit} s)" if status.time_limit else ""
        return Diagnosis.of(Cause.DEADLINE, f"it was active longer than its active deadline{limit}")
    return None


def _with_stopped(
    diagnosis: Diagnosis, history: PodHistory, candidates: Sequence[Candidate], ranks: Mapping[str, int]
) -> Diagnosis:
    """Name the replicas that ran when the job was ended as a whole, with the log of the first of them."""
    ends = {one.end.replica: one for one in candidates if not history.is_superseded(one.end) and _was_ended(one)}
    names = by_rank([*ends, *history.running], ranks)
    if not names:
        return diagnosis
    listed = ", ".join(first_few([named(name, ranks) for name in names]))
    summary = f"{diagnosis.summary}; until then {listed} ran"
    lines = ends[names[0]].lines if names[0] in ends else ()
    return replace(diagnosis, summary=summary, replica=names[0], log_tail=bounded_tail(lines))


def _was_ended(one: Candidate) -> bool:
    outside = {Cause.TERMINATED, Cause.KILLED, Cause.SUPERVISOR_LOST, Cause.NODE_LOST, Cause.DEADLINE}
    return one.end.stopped or one.classified.cause in outside


def _backoff(status: JobStatus) -> str:
    return "its backoff limit" if "backoff limit" in status.message else ""


def _unseen(history: PodHistory, status: JobStatus) -> Diagnosis:
    """Diagnose from the object's own message when no container's end explains the failure."""
    message = f"the job says: {clip(status.message)}" if status.message else "the job does not say why"
    if _backoff(status):
        return Diagnosis.of(Cause.BACKOFF_LIMIT, f"its replicas failed up to the backoff limit; {message}")
    if history.is_blank(status.finished_at):
        unknown = "nobody followed the job, so it is unknown how its replicas ended"
        return Diagnosis.of(Cause.UNKNOWN, f"{unknown}; {message}", resolution=_FOLLOW)
    return Diagnosis.unknown(f"no replica was seen failing; {message}")


def _is_in_loop(history: PodHistory, end: Termination) -> bool:
    counts = history.restarts_of(end.replica, end.container)
    return counts is not None and end.run >= counts.settled


def _follows(one: Candidate, root: Candidate) -> bool:
    killed_later = one.classified.cause is Cause.KILLED and one.end.ended_at >= root.end.ended_at
    return one.is_consequence or killed_later


def _unstarted(history: PodHistory, ended: Sequence[Candidate]) -> list[Candidate]:
    """Return the ends of replicas that ended before their training container started."""
    begun = {one.end.replica for one in ended if one.end.kind is not ContainerKind.INIT}
    return [one for one in ended if one.end.replica not in begun and not history.has_run(one.end.replica)]


def _replicas(candidates: Iterable[Candidate], ranks: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(by_rank((one.end.replica for one in candidates), ranks))


def _summary(history: PodHistory, root: Candidate, ranks: Mapping[str, int], limit: str) -> str:
    end, classified = root.end, root.classified
    who = named(end.replica, ranks)
    if end.kind is not ContainerKind.TRAINING:
        who = f"{who} {end.kind} container {end.container}"
    if classified.process:
        who = f"process rank {classified.process} of {who}"
    counts = history.restarts_of(end.replica, end.container)
    times = counts.total if counts else 0  # also those after this end
    joint = "," if limit else " and"
    again = f"{joint} was restarted {times} time{'' if times == 1 else 's'}" if times else ""
    reached = f" and reached {limit}" if limit else ""
    return f"{who} {classified.text(f'{again}{reached}')}"


def _after(history: PodHistory, ranks: Mapping[str, int], cause: Cause, what: str) -> Diagnosis:
    """Return what ended the job, and which replica had failed independently before."""
    root = root_of(history, [one for one in candidates_of(history) if not one.is_consequence], ranks)
    if root is None:
        return Diagnosis.of(cause, what)
    summary = f"{what}; before that {_summary(history, root, ranks, '')}"
    return Diagnosis.of(
        cause, summary, replica=root.end.replica, log_tail=bounded_tail(without_agent_lines(root.lines))
    )


def failed_replicas(history: PodHistory, *, ranks: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return [{replica, rank, exit_code, cause, message}] of the replicas whose last run failed, by rank.

    Stopped replicas are left out: the operator stops what still runs when rank 0 has ended. `cause` is a `Cause`,
    `message` completes "worker-0 …"; `rank` and `exit_code` are None if unknown.
    """
    last = [one for one in candidates_of(history) if not history.is_superseded(one.end)]
    failed = [one for one in last if one.end.kind is not ContainerKind.SIDECAR and not one.was_only_stopped]
    by_replica = {one.end.replica: one for one in sorted(failed, key=lambda one: one.end.ended_at)}
    return [
        {
            "replica": name,
            "rank": ranks.get(name),
            "exit_code": by_replica[name].end.exit_code,
            "cause": by_replica[name].classified.cause.value,
            "message": by_replica[name].classified.text(),
        }
        for name in by_rank(by_replica, ranks)
    ]


def failed_replicas_text(failed: Sequence[Mapping[str, Any]]) -> str:
    """Return the first few of `failed_replicas` as a sentence's end; "" if there are none."""
    known = {one["replica"]: one["rank"] for one in failed if one["rank"] is not None}
    texts = [f"{named(one['replica'], known)} {one['message']}" for one in failed]
    return "; ".join(first_few(texts, more="more failed"))
