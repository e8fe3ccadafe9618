"""Clean up a job's object after the job's end, and the job of a try that ends before it."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, JobNotFound, PTJobError
from ptjob_provider.core.identity import UNFOLLOWED_ANNOTATION, JobRef, is_owned_by, unfollowed_since
from ptjob_provider.core.spec.literals import word
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from ptjob_provider.core.attempts import AttemptStore
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Owner
    from ptjob_provider.core.submission import Submission


class OnFinishAction(StrEnum):
    """Action on an ended job, once its log, record and outputs are collected.

    The values are KubernetesPodOperator's. No action touches a claim or its files.
    """

    KEEP_JOB = "keep_job"
    """The job stays for its TTL; a manifest's job without one gets the default of seven days."""
    DELETE_JOB = "delete_job"
    DELETE_SUCCEEDED_JOB = "delete_succeeded_job"

    @classmethod
    def parse(cls, given: str) -> Self:
        """Parse the argument.

        Raises:
            InvalidSpec: there is no such action.
        """
        return cls(word(*cls)("on_finish_action", given))

    def deletes(self, *, succeeded: bool) -> bool:
        """Return whether a job with this outcome is deleted."""
        return self is OnFinishAction.DELETE_JOB or (self is OnFinishAction.DELETE_SUCCEEDED_JOB and succeeded)


async def delete_if_unfinished(backend: Backend, ref: JobRef, *, unless_left_since: datetime | None = None) -> bool:
    """Delete a job that is running or pending, and return whether there was one; a finished job is kept.

    Args:
        backend: the back-end.
        ref: the job.
        unless_left_since: keep a job that a last try left running at this instant or later, see `leave_running`.
    """
    try:
        found = await backend.get(ref.kind, ref.namespace, ref.name)
    except JobNotFound:
        return False
    if JobRef.of(found) != ref or kinds.read_status(found).phase.is_terminal:
        return False
    left_at = unfollowed_since(found)
    if unless_left_since is not None and left_at is not None and left_at >= unless_left_since:
        return False
    await backend.delete(ref)
    return True


async def known_job(backend: Backend, owner: Owner, store: AttemptStore) -> JobRef | None:
    """Return the job of the stored attempt, even if its create was in progress; None if there is none."""
    record = store.load()
    if record is None or record.ended:
        return None
    try:
        found = await backend.get(record.kind, record.namespace, record.name)
    except JobNotFound:
        return None
    ref = JobRef.of(found)
    return ref if is_owned_by(found, owner) and record.uid in {None, ref.uid} else None


def is_left_to_next_try(error: Exception, *, may_retry: bool) -> bool:
    """Return whether the job keeps running after a try that ends with this error, because the next try adopts it."""
    return may_retry and bool(getattr(error, "retryable", True))


async def abandon(backend: Backend, owner: Owner, store: AttemptStore, *, ref: JobRef | None = None, why: str) -> str:
    """Delete the unfinished job that nothing will follow, and return a sentence about it; "" for nothing.

    Args:
        backend: the back-end.
        owner: the job's owner.
        store: the try's store, used if `ref` is unknown.
        ref: the job.
        why: reason why nothing follows the job.
    """
    try:
        ref = ref or await known_job(backend, owner, store)
        if ref is not None and await delete_if_unfinished(backend, ref):
            return f"{ref} was deleted: {why}"
    except ClusterError as error:
        return f"the job may still run and could not be deleted: {error}"
    return ""


async def leave_running(backend: Backend, owner: Owner, store: AttemptStore, *, ref: JobRef | None = None) -> str:
    """Mark the unfinished job that could not be followed, and return a sentence about it; "" for nothing.

    The job itself may be healthy, so it is not stopped; the orphan search spares marked jobs for a longer grace.

    Args:
        backend: the back-end.
        owner: the job's owner.
        store: the last try's store, used if `ref` is unknown.
        ref: the job.
    """
    record = store.load()
    name = str(ref) if ref else f"{record.namespace}/{record.name}" if record else "the job"
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
        return (
            f"{name} may still run, and could not be marked for the orphan search to spare it ({error}): it may be "
            "stopped by the next search. Look at it: ptjob get; end it: ptjob delete"
        )
    return f"{ref} was left running. Look at it: ptjob get {ref.name}; end it: ptjob delete {ref.name}"


async def what_stays(backend: Backend, submission: Submission) -> str:
    """Return a sentence about what remains of an orphaned job and must be deleted by hand; "" for nothing."""
    ref = submission.ref
    if not submission.tensorboard_url:
        return ""
    try:
        found = await backend.get(ref.kind, ref.namespace, ref.name)
    except ClusterError:  # the job exists nevertheless
        return ""
    if kinds.kind_of(found).expires(found):
        return ""
    return f"{ref}: its TensorBoard stands until the job is deleted, which nothing does by itself"


async def act_on_finished(backend: Backend, ref: JobRef, action: OnFinishAction, *, succeeded: bool) -> bool:
    """Delete an ended job, or set its TTL, according to the action; return whether it was deleted here."""
    try:
        found = await backend.get(ref.kind, ref.namespace, ref.name)
    except JobNotFound:
        return False
    if JobRef.of(found) != ref or found["metadata"].get("deletionTimestamp"):
        return False
    if action.deletes(succeeded=succeeded):
        await backend.delete(ref)
        return True
    change = kinds.kind_of(found).expiring(found)
    try:
        if change is not None:
            await backend.patch(ref, change)
    finally:  # the TensorBoard stays only if the job's TTL removes it
        if TensorBoardPlan.of(found) is not None:
            await backend.ensure_tensorboard(ref)
    return False
