"""Find the replica that failed first and the reason, and build diagnoses from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.containment import contained
from ptjob_provider.core.diagnosis.causes import (
    CAUSES,
    RESUMES,
    Cause,
    Diagnosis,
    bounded_tail,
    by_rank,
    first_few,
    named,
)
from ptjob_provider.core.diagnosis.classify import STOPS, Classification, classify, disrupted, signal_of
from ptjob_provider.core.diagnosis.last_lines import clip, lines_of, python_errors, without_agent_lines
from ptjob_provider.core.diagnosis.startup_failure import WAITS_FOR_MASTER, not_started
from ptjob_provider.core.history import ContainerKind, Termination

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.history import PodHistory, Removal
    from ptjob_provider.core.outputs.contract import OutputProblem
    from ptjob_provider.core.status import JobStatus

PROPAGATION = timedelta(seconds=60)
"""Maximum time by which a consequence may appear to end before its cause.

Instants have whole seconds and come from different nodes. When a process dies, its peers notice the closed socket at
once, but torchrun waits up to 30 s for its other processes before the container ends."""


_NO_LOG = {"StartError", "ContainerCannotRun", "ContainerStatusUnknown"}
"""Reasons of ends whose termination message is the kubelet's own and not the end of a log."""
_DELETED = Classification(
    cause=Cause.TERMINATED,
    did="was stopped",
    detail="its pod was deleted, and not by the job's operator",
    resolution=f"Run it again; {RESUMES}",
)
_TRAINERS_DEADLINE = "DeadlineExceeded"
"""Reason of a TrainJob that exceeded its deadline; training-operator has this only in the message."""
_FOLLOW = f"{CAUSES[Cause.UNKNOWN].advice}; follow the next one (ptjob follow)"
_OWN_REASONS = {Cause.PYTHON_EXCEPTION, Cause.GPU_OUT_OF_MEMORY, Cause.SHARED_MEMORY, Cause.OUT_OF_MEMORY}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One failed end of a container, with its classification and the last lines of its log."""

    end: Termination
    classified: Classification
    lines: tuple[str, ...]

    @property
    def is_consequence(self) -> bool:
        """Return whether the container may have ended because another replica did.

        A disruption of the pod is a cause of its own, and so is an error printed before the program was stopped.
        """
        return not self.end.disruption and (self._was_stopped or self.classified.is_consequence)

    @property
    def was_only_stopped(self) -> bool:
        """Return whether the container was stopped without a cause of its own, such as after rank 0's end."""
        return not self.end.disruption and (self._was_stopped or signal_of(self.end) in STOPS)

    @property
    def _was_stopped(self) -> bool:
        return self.end.stopped and self.classified.cause not in _OWN_REASONS


@contained(lambda why, *_: Diagnosis.unknown(f"the cause of its failure cannot be read: {why}"))
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
        tails: pod name → last lines of its log, for pods of which more lines are known than the history has.
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
    return _gave_up(history, root, ranks) or describe(history, root, candidates, ranks=ranks, limit=_backoff(status))


def _gave_up(history: PodHistory, root: Candidate, ranks: Mapping[str, int]) -> Diagnosis | None:
    """Diagnose a master that did not start, so that a worker gave up waiting for it; None for any other failure."""
    who = named(root.end.replica, ranks)
    if root.end.container != WAITS_FOR_MASTER or root.end.disruption:
        return None
    if history.held_up:
        return not_started(history.held_up, f"did not start, and {who} gave up waiting for it", ranks)
    if history.has_run(min(ranks, key=lambda name: ranks[name], default="")):
        return None
    unknown = "and nothing tells any more why it did not start"
    summary = f"{who} gave up waiting for the master, {unknown}"
    return Diagnosis.of(Cause.START_TIMEOUT, summary, replica=root.end.replica)


def _first_removal(history: PodHistory, root: Candidate | None) -> Removal | None:
    """Return the first removal of a pod; None if there is none or a replica has failed by itself before.

    Instants have whole seconds, and the operator's events about its own deletions may be late. Of two removals in one
    second, the removal with a reason counts as the first.
    """
    first = min(history.removals, key=lambda removal: (removal.requested_at, not removal.disruption), default=None)
    if first is None or root is None:
        return first
    return first if root.is_consequence and first.requested_at <= root.end.ended_at else None


def _removed(
    removed: Removal, history: PodHistory, candidates: Sequence[Candidate], ranks: Mapping[str, int]
) -> Diagnosis:
    classified = disrupted(removed.disruption) if removed.disruption else _DELETED
    lines = next((each.lines for each in candidates if each.end.pod_uid == removed.pod_uid), ())
    end = Termination(replica=removed.replica, pod_uid=removed.pod_uid, finished_at=removed.requested_at)
    return describe(history, Candidate(end=end, classified=classified, lines=lines), candidates, ranks=ranks)


def needs_events(history: PodHistory, status: JobStatus, *, ranks: Mapping[str, int]) -> bool:
    """Return whether later events may change the diagnosis of a failed job, which is that a replica was stopped.

    The operator deletes the other replicas after it has failed the job, and reports that last.
    """
    return diagnose(history, status, ranks=ranks).cause is Cause.TERMINATED


def candidates_of(
    history: PodHistory, tails: Mapping[str, Sequence[str]] | None = None, *, over_at: datetime | None = None
) -> list[Candidate]:
    """Return the failed ends of the history, with their classification.

    Args:
        history: the history of a job's pods.
        tails: pod name → last lines of its log, which are of the last run of the replica.
        over_at: when the job failed; None if unknown.
    """
    failed = [end for end in history.terminations if end.failed]
    all_tails = tails or {}
    candidates = [
        candidate_of(end, () if history.is_superseded(end) else all_tails.get(end.replica, ())) for end in failed
    ]
    removed = [removal.requested_at for removal in history.removals]
    since = min([*removed, *([over_at] if over_at else [])]) if removed else None
    return [_stopped_since(since, candidate) for candidate in candidates] if since else candidates


def _stopped_since(removed_at: datetime, candidate: Candidate) -> Candidate:
    """Return the candidate; mark it as stopped if it ended after the first removal without a cause of its own.

    When somebody deletes a pod, the operator fails the job and deletes the other pods. Such a pod may be observed
    as terminating only once, when the kubelet has already overwritten the time of the deletion request.
    """
    has_reason = candidate.classified.cause is not Cause.KILLED and not candidate.classified.is_vague
    if has_reason or candidate.end.ended_at <= removed_at:
        return candidate
    return replace(candidate, end=replace(candidate.end, stopped=True))


def root_of(history: PodHistory, candidates: Sequence[Candidate], ranks: Mapping[str, int]) -> Candidate | None:
    """Return the root cause, of which the other ends are consequences; None if no end counts as a failure.

    The last end of each container counts, and the first of these by time is the cause, with these exceptions:

    - If that end may be a consequence, and an end with a cause of its own follows within PROPAGATION, the latter is the
      cause.
    - If all last ends are consequences, the earlier runs of the same crash loop are searched; the first of the latest
      failures is the cause, because the job has recovered from earlier ones.
    - If there are only consequences, a replica whose pod the operator has not deleted comes before the others.
    - Of ends in one second, the first is that of the replica whose previous run ended first, then of the lower rank.
    - If the last ends are only of pods that the operator has deleted, a disruption shortly before is the cause.
    """
    earlier_ends = _earlier_ends(candidates)
    ordered = sorted(
        _weighty(candidates), key=lambda each: (earlier_ends[each.end.key], ranks.get(each.end.replica, len(ranks)))
    )
    last = [each for each in ordered if not history.is_superseded(each.end)]
    if (evicted := _replaced_while_it_failed(history, ordered, last)) is not None:
        return evicted
    causes = [each for each in last if not each.is_consequence]
    victims = [each for each in last if each.is_consequence and not each.end.stopped]
    victims.sort(key=lambda each: each.end.replica in history.operator_deleted)
    if not causes:
        earlier = [each for each in ordered if not each.is_consequence and _is_in_loop(history, each.end)]
        return _latest(earlier) if earlier else next(iter(victims), None)
    if victims and causes[0].end.ended_at - victims[0].end.ended_at > PROPAGATION:
        return victims[0]
    return _clearest(causes)


def _replaced_while_it_failed(
    history: PodHistory, ordered: Sequence[Candidate], last: Sequence[Candidate]
) -> Candidate | None:
    """Return the end of a disrupted pod that the operator has replaced while it failed the job; None for other ends.

    training-operator 1.9 does both if the pod has not begun to train. It then deletes the new pod and all others.
    """
    if not last or not all(_was_swept(history, each) for each in last):
        return None
    replaced = [each for each in ordered if each.end.disruption and history.is_superseded(each.end)]
    near = [each for each in replaced if all(abs(one.end.ended_at - each.end.ended_at) <= PROPAGATION for one in last)]
    return near[-1] if near else None


def _was_swept(history: PodHistory, candidate: Candidate) -> bool:
    """Return whether the container ended only because the operator deleted its pod."""
    was_killed = candidate.is_consequence or candidate.classified.cause is Cause.KILLED
    return was_killed and candidate.end.replica in history.operator_deleted


def _weighty(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the candidates without sidecars, unless there are only sidecars; the kubelet stops them at a pod's end."""
    return [each for each in candidates if each.end.kind is not ContainerKind.SIDECAR] or candidates


def _clearest(causes: Sequence[Candidate]) -> Candidate:
    """Return the first cause or, if it is vague, the first cause within PROPAGATION that is not.

    The last 2 KiB of a log may contain only torchrun's own lines, while the log of a peer has the explanation.
    """
    first = causes[0]
    clear = (
        each
        for each in causes
        if not each.classified.is_vague and each.end.ended_at - first.end.ended_at <= PROPAGATION
    )
    return next(clear, first)


def _latest(causes: Sequence[Candidate]) -> Candidate:
    """Return the first clear cause among the runs that ended together last, else the last clear cause before them.

    The last end and the ends within PROPAGATION before it, during its run, count as together: replicas that are
    restarted lose the connection to each other once in every run.
    """
    last = causes[-1].end
    near = [each for each in causes if last.ended_at - each.end.ended_at <= PROPAGATION]
    newest = {(each.end.replica, each.end.container): each for each in near}
    since = min(last.started_at or last.ended_at, last.ended_at)  # a node's clock may have been set back meanwhile
    together = [each for each in near if each in newest.values() and each.end.ended_at >= since]
    return next((each for each in [*together, *reversed(near)] if not each.classified.is_vague), together[0])


def _earlier_ends(candidates: Sequence[Candidate]) -> dict[str, list[datetime]]:
    """Return, by the key of each end, the times of that end and of its container's earlier ends, latest first."""
    runs: dict[tuple[str, str], list[Termination]] = {}
    for each in sorted(candidates, key=lambda each: each.end.run):
        runs.setdefault((each.end.replica, each.end.container), []).append(each.end)
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
    """Build the diagnosis from the root cause, with the replicas that ended as a consequence."""
    resolution, retryable = root.classified.advice
    others = [
        each for each in candidates if each.end.replica != root.end.replica and not history.is_superseded(each.end)
    ]
    followers = [each for each in others if _follows(each, root)]
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
        also_failed=_replicas((each for each in others if each not in followers), ranks),
        log_tail=bounded_tail(without_agent_lines(root.lines)),
    )


def deleted(history: PodHistory, *, ranks: Mapping[str, int]) -> Diagnosis:
    """Diagnose a job that was deleted; includes an earlier failure of a replica."""
    return _after(history, ranks, Cause.DELETED, "somebody deleted it before it had ended")


def timed_out(history: PodHistory, *, ranks: Mapping[str, int], waiting: str = "", is_gone: bool = False) -> Diagnosis:
    """Diagnose a job that was unfinished at its follower's deadline.

    Args:
        history: the history of its pods.
        ranks: pod name → rank.
        waiting: why it waited at the deadline; "" if it did not wait.
        is_gone: it was deleted before it could be observed after the deadline.
    """
    what = f"it was still waiting at the deadline ({waiting})" if waiting else "it was unfinished at the deadline"
    if is_gone:
        what = "its deadline has passed, and it was deleted before its end was observed"
    diagnosis = _after(history, ranks, Cause.TIMED_OUT, what)
    return diagnosis if diagnosis.replica else _with_stopped(diagnosis, history, (), ranks)


def not_stopped(why: Diagnosis, *, seconds: float) -> Diagnosis:
    """Return the diagnosis of a job that was not stopped at the deadline, because the server did not allow it."""
    text = f"the API server did not let it be checked and stopped within {seconds:.0f} s after the deadline"
    advice = "The job was left as it is and may go on: look at it with ptjob get; a retry adopts it"
    return replace(why, summary=f"{text}; {why.summary}", resolution=advice)


def outputs_failed(problems: Sequence[OutputProblem], *, replica: str = "", log: Sequence[str] = ()) -> Diagnosis:
    """Diagnose a job that succeeded without its declared outputs.

    Args:
        problems: the problems of the outputs.
        replica: rank 0, which writes the outputs.
        log: its last lines. An exception in one of its threads does not end a program.
    """
    defects = "; ".join(problem.summary for problem in problems)
    if errors := python_errors(log):
        defects = f"{defects}; its log has a traceback that ends with {errors[-1]}"
    advice = "; ".join(dict.fromkeys(problem.resolution for problem in problems))
    summary = f"{named(replica, {replica: 0}) if replica else 'it'} ran to its end, but {defects}"
    return Diagnosis.of(
        Cause.OUTPUTS,
        summary,
        replica=replica,
        resolution=f"{advice[:1].upper()}{advice[1:]}; a retry would fail the same way",
    )


def candidate_of(end: Termination, tail: Sequence[str] = ()) -> Candidate:
    """Return a failed end with its classification; `tail` are the last lines of its run's log, if they were read."""
    message = () if _is_kubelets(end) else lines_of(end.message)
    lines = tuple(tail) if end.kind is ContainerKind.TRAINING and _reaches(tail, message) else message
    classified = classify(end, lines)
    if end.kind is ContainerKind.INIT and classified.cause is Cause.EXIT_CODE:
        classified = replace(classified, cause=Cause.INIT, resolution="", retryable=None)
    return Candidate(end=end, classified=classified, lines=lines)


def _is_kubelets(end: Termination) -> bool:
    """Return whether the message is the kubelet's own: after an eviction, the kubelet may be unable to read the log."""
    return end.reason in _NO_LOG or end.message.startswith("Error on reading termination message from logs")


def _reaches(tail: Sequence[str], message: Sequence[str]) -> bool:
    """Return whether the lines read from a log contain the last line of the termination message: nothing is missing."""
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
    """Return the diagnosis with the replicas that ran when the whole job was ended, and the last lines of the first."""
    ends = {each.end.replica: each for each in candidates if not history.is_superseded(each.end) and _was_ended(each)}
    names = by_rank([*ends, *history.running], ranks)
    if not names:
        return diagnosis
    listed = ", ".join(first_few([named(name, ranks) for name in names]))
    summary = f"{diagnosis.summary}; until then {listed} ran"
    lines = ends[names[0]].lines if names[0] in ends else ()
    return replace(diagnosis, summary=summary, replica=names[0], log_tail=bounded_tail(lines))


def _was_ended(candidate: Candidate) -> bool:
    outside = {Cause.TERMINATED, Cause.KILLED, Cause.SUPERVISOR_LOST, Cause.NODE_LOST, Cause.DEADLINE}
    return candidate.end.stopped or candidate.classified.cause in outside


def _backoff(status: JobStatus) -> str:
    return "its backoff limit" if "backoff limit" in status.message else ""


def _unseen(history: PodHistory, status: JobStatus) -> Diagnosis:
    """Diagnose a failure that no container's end explains, by the message in the job's status."""
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


def _follows(candidate: Candidate, root: Candidate) -> bool:
    killed_later = candidate.classified.cause is Cause.KILLED and candidate.end.ended_at >= root.end.ended_at
    return candidate.is_consequence or killed_later


def _unstarted(history: PodHistory, ended: Sequence[Candidate]) -> list[Candidate]:
    """Return the ends of replicas whose training container had not started."""
    begun = {each.end.replica for each in ended if each.end.kind is not ContainerKind.INIT}
    return [each for each in ended if each.end.replica not in begun and not history.has_run(each.end.replica)]


def _replicas(candidates: Iterable[Candidate], ranks: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(by_rank((each.end.replica for each in candidates), ranks))


def _summary(history: PodHistory, root: Candidate, ranks: Mapping[str, int], limit: str) -> str:
    end, classified = root.end, root.classified
    who = named(end.replica, ranks)
    if end.kind is not ContainerKind.TRAINING:
        who = f"{who} {end.kind} container {end.container}"
    if classified.process:
        who = f"process rank {classified.process} of {who}"
    counts = history.restarts_of(end.replica, end.container)
    times = counts.total if counts else 0  # includes restarts after this end
    joint = "," if limit else " and"
    again = f"{joint} was restarted {times} time{'' if times == 1 else 's'}" if times else ""
    reached = f" and reached {limit}" if limit else ""
    return f"{who} {classified.text(f'{again}{reached}')}"


@contained(lambda why, *args: Diagnosis.of(args[2], f"{args[3]}; how it was before cannot be read: {why}"))
def _after(history: PodHistory, ranks: Mapping[str, int], cause: Cause, what: str) -> Diagnosis:
    """Build the diagnosis of a job that was ended as a whole, with the replica that had failed by itself before."""
    root = root_of(history, [each for each in candidates_of(history) if not each.is_consequence], ranks)
    if root is None:
        return Diagnosis.of(cause, what)
    summary = f"{what}; before that {_summary(history, root, ranks, '')}"
    return Diagnosis.of(
        cause, summary, replica=root.end.replica, log_tail=bounded_tail(without_agent_lines(root.lines))
    )


@contained(lambda *_: [])
def failed_replicas(history: PodHistory, *, ranks: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return [{replica, rank, exit_code, cause, message}] of the replicas whose last run failed, by rank.

    Replicas that were only stopped are left out: when rank 0 has ended, the operator stops all others. `cause` is the
    value of a `Cause`, `message` completes "worker-0 …"; `rank` and `exit_code` are None if unknown.
    """
    last = [each for each in candidates_of(history) if not history.is_superseded(each.end)]
    failed = [each for each in last if each.end.kind is not ContainerKind.SIDECAR and not each.was_only_stopped]
    by_replica = {each.end.replica: each for each in sorted(failed, key=lambda each: each.end.ended_at)}
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
    """Return the first few of `failed_replicas` as text for the end of a sentence; "" if there are none."""
    ranks = {each["replica"]: each["rank"] for each in failed if each["rank"] is not None}
    texts = [f"{named(each['replica'], ranks)} {each['message']}" for each in failed]
    return "; ".join(first_few(texts, more="more failed"))
