"""Find orphaned jobs: jobs that still run although no Airflow task waits for them.

Airflow has no object in the cluster that could own a job, so Kubernetes does not delete jobs with their task. If a
worker is killed on its last try, or a task is marked while no triggerer runs, its job runs on. The search classifies
each job:

    its task instance waits    a later job of the same task    the job is
    -----------------------    ----------------------------    ---------------------------------------
    yes                        no                              followed
    yes                        yes                             orphaned: its task follows the later one
    no                         -                               orphaned
    has no state, or is gone   -                               orphaned after the grace period of unfollowed jobs
    no answer                  -                               kept, and reported as unknown

The search ignores jobs of other installations, jobs that no Airflow task created, jobs younger than the grace period,
and jobs left running on request (`LeaveRunning`). A job that its last try could not follow any more may be healthy, and
has a longer grace period. So has the job of a task without a state, or that is gone, from the first search that finds
it: a scheduler that takes over resets running tasks, and their next tries adopt their jobs; a database that was
restored from a backup lacks the runs that began since. Of an ended job, only the replicas that still run are stopped.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, PTJobError
from ptjob_provider.core.identity import (
    AIRFLOW_IDS,
    LEAVE_RUNNING_ANNOTATION,
    MANAGED_LABEL,
    UNFOLLOWED_ANNOTATION,
    Instance,
    JobRef,
    Manifest,
    annotation_of,
    owner_in,
    unfollowed_since,
)
from ptjob_provider.core.run.judged import delete_judged
from ptjob_provider.core.run.lookup import list_jobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from ptjob_provider.core.backend import Backend, Observation
    from ptjob_provider.core.spec import TrainingJob
    from ptjob_provider.core.status import JobPhase

    StateOf = Callable[[Mapping[str, str]], Awaitable[str | None]]

GRACE = timedelta(minutes=10)
"""Default minimum age of an orphan: a new job may exist before Airflow's API reports its task as running."""

UNFOLLOWED_GRACE = timedelta(days=1)
"""Default grace period of a job that could not be followed any more."""

WAITING_STATES = frozenset(
    {"running", "deferred", "queued", "scheduled", "up_for_retry", "up_for_reschedule", "restarting"}
)
"""Airflow states of a task instance that follows its job, or whose next try will follow it."""

_GONE = "its task instance is gone"
_RESET = "its task has no state: it was cleared, or reset by a scheduler"


class LeaveRunning(StrEnum):
    """Parts of a job that its creator allows to run although no task follows the job."""

    JOB = "job"
    """The whole job: its task only submits it."""
    PODS = "pods"
    """The replicas that still run after the job's end."""


@dataclass(frozen=True, kw_only=True)
class LiveJob:
    """An unfinished job, or a finished one with running replicas.

    Attributes:
        ref: the job.
        instance: the installation that created it; "" if unknown.
        owner: the ids of the task instance that it was created for.
        phase: the job's phase.
        created_at: its creation time.
        leave_running: a value of `LeaveRunning`, or "".
        unfollowed_since: the time at which the last try gave up following it; None if none did.
    """

    ref: JobRef
    instance: str
    owner: Mapping[str, str]
    phase: JobPhase
    created_at: datetime
    leave_running: str = ""
    unfollowed_since: datetime | None = None

    @classmethod
    def of(cls, job: Manifest) -> LiveJob:
        """Build a LiveJob from the job's object."""
        meta, owner = job["metadata"], owner_in(job)
        return cls(
            ref=JobRef.of(job),
            instance=owner.instance,
            owner=owner.ids,
            phase=kinds.read_status(job).phase,
            created_at=datetime.fromisoformat(meta["creationTimestamp"]),
            leave_running=annotation_of(job, LEAVE_RUNNING_ANNOTATION),
            unfollowed_since=unfollowed_since(job),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        fields = {"phase": self.phase.value, "created_at": self.created_at.isoformat(), "instance": self.instance}
        return {**self.ref.to_dict(), **fields, "owner": dict(self.owner)}

    def is_followed_by(self, other: LiveJob) -> bool:
        """Return whether the other job is a later job of the same task."""
        same = (self.instance, self.owner) == (other.instance, other.owner)
        return same and self.created_at < other.created_at


@dataclass(frozen=True, kw_only=True)
class Orphan:
    """An orphaned job, or a job whose task's state is unknown.

    Attributes:
        job: the job.
        why: reason why no task waits for the job; "" if unknown.
        stopped: this search has stopped the job.
        error: error of the query for the task's state, or of the stop; "" for none.
    """

    job: LiveJob
    why: str = ""
    stopped: bool = False
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return {**self.job.to_dict(), "why": self.why, "stopped": self.stopped, "error": self.error}


def with_leave_running(job: TrainingJob, leave: LeaveRunning | None) -> TrainingJob:
    """Return the job, annotated with the parts of it that may run although no task follows the job."""
    if leave is None:
        return job
    return replace(job, annotations={**(job.annotations or {}), LEAVE_RUNNING_ANNOTATION: leave.value})


def candidates(
    jobs: Sequence[LiveJob],
    *,
    instance: Instance,
    grace: timedelta,
    now: datetime,
    unfollowed_grace: timedelta,
) -> list[LiveJob]:
    """Return the jobs of this installation's tasks that are older than their grace period."""
    return [
        job
        for job in jobs
        if instance.has(job.instance)
        and job.owner.keys() >= AIRFLOW_IDS
        and now - job.created_at >= grace
        and job.leave_running != (LeaveRunning.PODS if job.phase.is_terminal else LeaveRunning.JOB)
        and (job.unfollowed_since is None or now - job.unfollowed_since >= unfollowed_grace)
    ]


def reason(job: LiveJob, state: str | None, jobs: Sequence[LiveJob]) -> str:
    """Return the reason why no task waits for the job; "" if its task does.

    Args:
        job: the job.
        state: the state of its task instance; None if the task instance no longer exists.
        jobs: all live jobs.
    """
    if state is None:
        return _GONE
    if state == "none":
        return _RESET
    if state not in WAITING_STATES:
        return f"its task is {state}"
    later = [other for other in jobs if job.is_followed_by(other)]
    return f"its task waits for the later job {later[-1].ref.name}" if later else ""


async def sweep(
    backend: Backend,
    state_of: StateOf,
    *,
    namespace: str,
    instance: Instance,
    grace: timedelta = GRACE,
    unfollowed_grace: timedelta = UNFOLLOWED_GRACE,
    stop: bool = False,
    now: datetime | None = None,
) -> AsyncIterator[Orphan]:
    """Yield the orphaned jobs of one namespace; with `stop`, stop or mark each job before it is yielded.

    `state_of` returns the state of the task instance with these ids, None if it or its run no longer exists, or raises
    ClusterError. An error with one job is reported in its `Orphan`, and the search continues.
    """
    managed = await list_jobs(backend, namespace, {MANAGED_LABEL: "true"})
    jobs = [LiveJob.of(job) for job in managed if await _uses_something(backend, job)]
    now = now or datetime.now(UTC)
    for job in candidates(jobs, instance=instance, grace=grace, now=now, unfollowed_grace=unfollowed_grace):
        orphan = await _judge(state_of, job, jobs)
        if orphan is not None:
            yield await _stopped(backend, orphan, now) if stop and orphan.why else orphan
        elif stop and job.unfollowed_since is not None:  # its task waits again: a later reset has a grace of its own
            with suppress(PTJobError):
                await backend.patch(job.ref, {"metadata": {"annotations": {UNFOLLOWED_ANNOTATION: None}}})


async def _uses_something(backend: Backend, job: Manifest) -> bool:
    """Return whether the job is unfinished, or replicas still run after its end.

    Makes no request about the pods if the job's clean-up policy makes the operator stop them.
    """
    if job["metadata"].get("deletionTimestamp"):
        return False
    if not kinds.read_status(job).phase.is_terminal:
        return True
    return not kinds.stops_by_itself(job) and not await backend.pods_gone(JobRef.of(job))


async def _judge(state_of: StateOf, job: LiveJob, jobs: Sequence[LiveJob]) -> Orphan | None:
    try:
        why = reason(job, await state_of(job.owner), jobs)
    except ClusterError as error:
        return Orphan(job=job, error=f"whether its task waits is not known: {error}")
    return Orphan(job=job, why=why) if why else None


async def _stopped(backend: Backend, orphan: Orphan, now: datetime) -> Orphan:
    ref = orphan.job.ref

    async def judge(observation: Observation) -> str:
        if observation.job is None:
            return ""
        job = LiveJob.of(observation.job)
        return orphan.why if (job.phase.is_terminal, job.unfollowed_since, job.leave_running) == has_been else ""

    has_been = (orphan.job.phase.is_terminal, orphan.job.unfollowed_since, orphan.job.leave_running)
    try:
        change = kinds.named(ref.kind).STOP_RUNNING_PODS
        if orphan.why in {_RESET, _GONE} and orphan.job.unfollowed_since is None:
            await backend.patch(ref, {"metadata": {"annotations": {UNFOLLOWED_ANNOTATION: now.isoformat()}}})
            return orphan
        if orphan.job.phase.is_terminal and change is not None:
            await backend.patch(ref, change)
        elif not await delete_judged(backend, ref, judge):
            return replace(orphan, error="it was kept: it has ended, or was left running on purpose, meanwhile")
    except PTJobError as error:
        return replace(orphan, error=f"it could not be stopped: {error}")
    return replace(orphan, stopped=True)
