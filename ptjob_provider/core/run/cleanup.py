"""Clean up after a job: stop or delete what still runs, then delete the job's object or keep it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, JobNotFound, PTJobError
from ptjob_provider.core.identity import AIRFLOW_IDS, UNFOLLOWED_ANNOTATION, JobRef, is_owned_by, unfollowed_since
from ptjob_provider.core.run.judged import delete_judged
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ptjob_provider.core.backend import Backend, Observation
    from ptjob_provider.core.identity import Owner
    from ptjob_provider.core.run.api_errors import ApiErrors
    from ptjob_provider.core.run.attempts import AttemptStore
    from ptjob_provider.core.run.rank0_log import Sink
    from ptjob_provider.core.run.submit import Submission
    from ptjob_provider.core.spec.on_finish import OnFinishAction

SETTLE_TIMEOUT = 3.0
"""Seconds to wait until the replicas of an ended job end by themselves. Stopping replicas removes their logs, and one
of the logs may show the cause of the failure."""

_POLL_INTERVAL = 0.2
"""Seconds between two requests that poll for the end of a job's pods, or of its object."""


async def stop(backend: Backend, ref: JobRef, sink: Sink, errors: ApiErrors) -> None:
    """Stop the replicas that still run after the job's end, and log that; does nothing for kinds that stop them."""
    change = kinds.named(ref.kind).STOP_RUNNING_PODS
    if change is None or await settled(backend, ref, errors):
        return
    try:
        await errors.answer(lambda: backend.patch(ref, change))
    except JobNotFound:  # its pods go with it
        return
    except PTJobError as error:
        sink.notice(f"{ref}: replicas that still run could not be stopped ({error}); delete the job")
        return
    sink.notice(f"{ref}: replicas that still ran after the job's end are being stopped")


async def settled(backend: Backend, ref: JobRef, errors: ApiErrors) -> bool:
    """Wait up to SETTLE_TIMEOUT for the replicas of an ended job to end, and return whether all have ended."""
    waited = 0.0
    while not await errors.answer(lambda: backend.pods_gone(ref)):
        if waited >= SETTLE_TIMEOUT:
            return False
        await asyncio.sleep(_POLL_INTERVAL)
        waited += _POLL_INTERVAL
    return True


STOP_TIMEOUT = 300.0
"""Maximum seconds that a new attempt waits for the pods of the previous attempt. Pods on a lost node stay until a
person intervenes."""

_QUIET = 3.0
"""Seconds without running pods after which a job counts as stopped although a finalizer still keeps its object, and
before which a TrainJob does not, although its object is gone."""

_LONGEST_PAUSE = 2.0


async def stop_and_wait(
    backend: Backend,
    ref: JobRef,
    *,
    judge: Callable[[Observation], Awaitable[str]] | None = None,
    frees_name: bool = False,
    timeout: float = STOP_TIMEOUT,  # noqa: ASYNC109 - the error says what has not ended
) -> None:
    """Delete the job, and return when none of its pods runs any more; with `frees_name`, when its object is gone, too.

    With `judge`, only if it demands that, see `delete_judged`; without, a person has ordered it.

    Raises:
        ClusterUnavailable: pods still ran, or the object was still there, after `timeout` seconds.
    """
    await (backend.delete(ref) if judge is None else delete_judged(backend, ref, judge))
    waited, pause = 0.0, _POLL_INTERVAL
    gone_since: float | None = None
    # Trainer may make the JobSet of a TrainJob once more while it does not know yet that the TrainJob is gone.
    enough = _QUIET if kinds.named(ref.kind).DELETION == "Background" else 0.0
    while True:
        if not await backend.pods_gone(ref):
            gone_since = None
        elif gone_since is None:
            gone_since = waited
        quiet = -1.0 if gone_since is None else waited - gone_since
        if quiet >= _QUIET and not frees_name:
            return
        if quiet >= enough and await _is_removed(backend, ref):
            return
        if waited >= timeout and quiet >= enough:
            raise ClusterUnavailable(f"{ref}: deleted {timeout:.0f} s ago and still there; look at its finalizers")
        if waited >= timeout and quiet < 0:
            raise ClusterUnavailable(
                f"{ref}: pods of this earlier attempt still run {timeout:.0f} s after it was deleted; look for a lost "
                "node, then try again: a new attempt is not started beside them"
            )
        await asyncio.sleep(pause)
        waited += pause
        pause = min(pause * 1.5, _LONGEST_PAUSE)


async def _is_removed(backend: Backend, ref: JobRef) -> bool:
    """Return whether the job's object is gone: from then on even a slow operator creates no more pods."""
    try:
        return JobRef.of(await backend.get(ref.kind, ref.namespace, ref.name)) != ref
    except JobNotFound:
        return True


async def delete_if_unfinished(
    backend: Backend, ref: JobRef, *, unless_left_since: datetime | None = None, submission: Submission | None = None
) -> bool:
    """Delete the job unless it has finished, and return whether it was deleted.

    Args:
        backend: the back-end.
        ref: the job.
        unless_left_since: keep the job if a last try left it running at this instant or later, see `leave_running`.
        submission: keep the job if a later try than this one's has adopted it.
    """

    async def judge(observation: Observation) -> str:
        job = observation.job
        if job is None or kinds.read_status(job).phase.is_terminal:
            return ""
        if submission is not None and submission.is_taken_over(job):
            return ""
        left_at = unfollowed_since(job)
        is_left = unless_left_since is not None and left_at is not None and left_at >= unless_left_since
        return "" if is_left else "nobody follows it"

    return await delete_judged(backend, ref, judge)


async def known_job(backend: Backend, owner: Owner, store: AttemptStore) -> JobRef | None:
    """Return the job of the stored attempt, even if its create request was in progress; None if there is none."""
    record = store.load()
    if record is None or record.ended or record.refused:
        return None
    try:
        job = await backend.get(record.kind, record.namespace, record.name)
    except JobNotFound:
        return None
    ref = JobRef.of(job)
    return ref if is_owned_by(job, owner) and record.uid in {None, ref.uid} else None


def is_left_to_next_try(error: Exception, *, may_retry: bool) -> bool:
    """Return whether a try that ends with this error leaves its job running, because the next try will adopt it."""
    return may_retry and bool(getattr(error, "retryable", True))


async def leave_running(backend: Backend, owner: Owner, store: AttemptStore, *, ref: JobRef | None = None) -> str:
    """Mark an unfinished job that could not be followed any more, and return a sentence about the job.

    The job may be healthy, so it is not stopped; the orphan search gives marked jobs a longer grace period. Returns ""
    if there is no such job.

    Args:
        backend: the back-end.
        owner: the job's owner.
        store: the last try's store, used if `ref` is None.
        ref: the job; None if the try ended before it knew the job.
    """
    record = store.load()
    name = ref or (record.ref if record else "the job")
    try:
        ref = ref or await known_job(backend, owner, store)
        if ref is None:
            return ""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        await backend.patch(ref, {"metadata": {"annotations": {UNFOLLOWED_ANNOTATION: now}}})
        if kinds.read_status(await backend.get(ref.kind, ref.namespace, ref.name)).phase.is_terminal:
            return ""
    except JobNotFound:
        return ""
    except PTJobError as error:
        if not isinstance(error, ClusterError) and ref is None and not (record and record.uid):
            return "This try has submitted nothing"  # no request was sent, for want of a configuration
        is_searched = owner.ids.keys() >= AIRFLOW_IDS
        danger = ", and could not be marked for the orphan search, which may stop it" if is_searched else ""
        return f"{name} may still run{danger} ({error}). Look at it: ptjob get; end it: ptjob delete"
    return f"{ref} was left running. Look at it: ptjob get {ref.name}; end it: ptjob delete {ref.name}"


async def act_on_finished(backend: Backend, ref: JobRef, action: OnFinishAction, *, succeeded: bool) -> bool:
    """Delete an ended job, or give it a TTL, as the action says; return whether this call deleted the job."""
    if action.deletes(succeeded=succeeded):
        await backend.delete(ref)
        return True
    try:
        job = await backend.get(ref.kind, ref.namespace, ref.name)
    except JobNotFound:
        return False
    if JobRef.of(job) != ref or job["metadata"].get("deletionTimestamp"):
        return False
    change = kinds.kind_of(job).expiring(job)
    try:
        if change is not None:
            await backend.patch(ref, change)
    finally:  # deletes the TensorBoard unless the job's TTL will delete it
        if TensorBoardPlan.of(job) is not None:
            await backend.ensure_tensorboard(ref)
    return False
