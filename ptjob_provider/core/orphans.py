"""Nobody's jobs: what runs on for a task of Airflow that does not wait for it any more.

Airflow has no object in the cluster that could own a job. A worker that is killed on its last try, or a task that is
marked while no triggerer runs, leaves its job behind; whoever looks later finds it here:

    the task instance waits    a later job of the same task    the job is
    -----------------------    ----------------------------    ---------------------------------------
    yes                        no                              waited for
    yes                        yes                             nobody's: its task follows the later one
    no, or it is gone          -                               nobody's
    no answer                  -                               left alone, and told as such

Left alone as well: jobs of another installation, of no task of Airflow, younger than the grace, and what their creator
wants to go on (`LeaveRunning`). One whose last try could not follow it any more, so that nothing is known to be wrong
with it, is left alone for a longer grace. Of a job that has ended only the replicas that still run are stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, PTJobError
from ptjob_provider.core.identity import MANAGED_LABEL, PREFIX, Instance, JobRef, Manifest, owner_in, unfollowed_since
from ptjob_provider.core.lookup import list_jobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.spec import TrainingJob
    from ptjob_provider.core.status import JobPhase

GRACE = timedelta(minutes=10)
"""A job may exist for a moment before Airflow's API says that its task waits."""

UNFOLLOWED_GRACE = timedelta(days=1)
"""A job that could not be followed any more goes on for so long, unless an installation says otherwise."""

WAITING_STATES = frozenset(
    {"running", "deferred", "queued", "scheduled", "up_for_retry", "up_for_reschedule", "restarting"}
)
"""Airflow's states of a task instance that follows its job, or whose next try will."""

LEAVE_RUNNING_ANNOTATION = f"{PREFIX}/leave-running"

_AIRFLOW_IDS = {"dag_id", "task_id", "run_id"}


class LeaveRunning(StrEnum):
    """What may go on without anybody who waits, because the job's creator said so."""

    JOB = "job"
    """The job: its task only submits it."""
    PODS = "pods"
    """Replicas that the job's end leaves running."""


@dataclass(frozen=True, kw_only=True)
class LiveJob:
    """A job that has not ended, or of which replicas run on.

    Attributes:
        ref: which object.
        instance: the installation that created it, "" if it does not say.
        owner: the ids that it was created for.
        phase: what its object says.
        created_at: when.
        leave_running: one of `LeaveRunning`, or "".
        unfollowed_since: when the last try gave up following it; None if none did.
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
        """Read it from the object."""
        meta, owner = job["metadata"], owner_in(job)
        return cls(
            ref=JobRef.of(job),
            instance=owner.instance,
            owner=owner.ids,
            phase=kinds.read_status(job).phase,
            created_at=datetime.fromisoformat(meta["creationTimestamp"]),
            leave_running=(meta.get("annotations") or {}).get(LEAVE_RUNNING_ANNOTATION, ""),
            unfollowed_since=unfollowed_since(job),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        said = {"phase": self.phase.value, "created_at": self.created_at.isoformat(), "instance": self.instance}
        return {**self.ref.to_dict(), **said, "owner": dict(self.owner)}

    @property
    def is_left_by_wish(self) -> bool:
        """Whether its creator wants that to go on which runs of it."""
        return self.leave_running == (LeaveRunning.PODS if self.phase.is_terminal else LeaveRunning.JOB)

    def is_followed_by(self, other: LiveJob) -> bool:
        """Whether the other is a later job of the same task."""
        same = (self.instance, self.owner) == (other.instance, other.owner)
        return same and self.created_at < other.created_at


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A job that nobody waits for, or of which nobody could say.

    Attributes:
        job: which.
        why: why nobody waits; "" if that is not known.
        stopped: whether it was stopped here.
        error: what stood in the way of asking or of stopping.
    """

    job: LiveJob
    why: str = ""
    stopped: bool = False
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return {**self.job.to_dict(), "why": self.why, "stopped": self.stopped, "error": self.error}


class Waiters(Protocol):
    """Who knows which tasks wait: an Airflow."""

    async def state(self, owner: Mapping[str, str]) -> str | None:
        """Return the state of the task instance with these ids; None if it, or its run, is gone.

        Raises:
            ClusterError: there was no answer.
        """


def marked(job: TrainingJob, leave: LeaveRunning | None) -> TrainingJob:
    """Return the job with what is to go on without anybody who waits written on its object."""
    if leave is None:
        return job
    return replace(job, annotations={**(job.annotations or {}), LEAVE_RUNNING_ANNOTATION: leave.value})


async def live_jobs(backend: Backend, namespace: str) -> list[LiveJob]:
    """Return the jobs of the namespace that an orchestrator created and that use something, oldest first."""
    found = await list_jobs(backend, namespace, {MANAGED_LABEL: "true"})
    return [LiveJob.of(job) for job in found if await _uses_something(backend, job)]


def suspects(
    jobs: Sequence[LiveJob],
    *,
    instance: Instance,
    grace: timedelta,
    now: datetime,
    unfollowed_grace: timedelta = UNFOLLOWED_GRACE,
) -> list[LiveJob]:
    """Return the jobs of this installation's tasks that are old enough to ask about."""
    return [
        job
        for job in jobs
        if instance.has(job.instance)
        and job.owner.keys() >= _AIRFLOW_IDS
        and now - job.created_at >= grace
        and not job.is_left_by_wish
        and (job.unfollowed_since is None or now - job.unfollowed_since >= unfollowed_grace)
    ]


def reason(job: LiveJob, state: str | None, jobs: Sequence[LiveJob]) -> str:
    """Say why nobody waits for the job; "" if somebody does.

    Args:
        job: which.
        state: of its task instance, None if that is gone.
        jobs: all that are live.
    """
    if state is None:
        return "its task instance is gone"
    if state not in WAITING_STATES:
        return f"its task is {state}"
    later = [other for other in jobs if job.is_followed_by(other)]
    return f"its task waits for the later job {later[-1].ref.name}" if later else ""


async def sweep(
    backend: Backend,
    waiters: Waiters,
    *,
    namespace: str,
    instance: Instance,
    grace: timedelta = GRACE,
    unfollowed_grace: timedelta = UNFOLLOWED_GRACE,
    stop: bool = False,
    now: datetime | None = None,
) -> AsyncIterator[Finding]:
    """Yield nobody's jobs of one namespace, each stopped before it is told if `stop` says so.

    What goes wrong with one job is told with it, and the next one is looked at.
    """
    jobs = await live_jobs(backend, namespace)
    now = now or datetime.now(UTC)
    for job in suspects(jobs, instance=instance, grace=grace, now=now, unfollowed_grace=unfollowed_grace):
        finding = await _judge(waiters, job, jobs)
        if finding is not None:
            yield await _stopped(backend, finding) if stop and finding.why else finding


async def _uses_something(backend: Backend, job: Manifest) -> bool:
    """Whether the job has not ended, or its end left replicas running; a policy other than None stops them."""
    if job["metadata"].get("deletionTimestamp"):
        return False
    if not kinds.read_status(job).phase.is_terminal:
        return True
    return not kinds.kind_of(job).stops_by_itself(job) and not await backend.pods_gone(JobRef.of(job))


async def _judge(waiters: Waiters, job: LiveJob, jobs: Sequence[LiveJob]) -> Finding | None:
    try:
        why = reason(job, await waiters.state(job.owner), jobs)
    except ClusterError as error:
        return Finding(job=job, error=f"whether its task waits is not known: {error}")
    return Finding(job=job, why=why) if why else None


async def _stopped(backend: Backend, finding: Finding) -> Finding:
    ref = finding.job.ref
    try:
        change = kinds.named(ref.kind).STOP_RUNNING_PODS
        if finding.job.phase.is_terminal and change is not None:
            await backend.patch(ref, change)
        else:
            await backend.delete(ref)
    except PTJobError as error:
        return replace(finding, error=f"it could not be stopped: {error}")
    return replace(finding, stopped=True)
