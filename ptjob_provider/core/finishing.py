"""What becomes of a job's object after the job's end, and of a job whose try ends before it."""

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
    """What becomes of a job that has ended, once its log, its story and its outputs are in.

    The words are KubernetesPodOperator's. No action touches a claim or what is on it.
    """

    KEEP_JOB = "keep_job"
    """It stays for its time to live; a manifest's job that has none is given the seven days of every other job."""
    DELETE_JOB = "delete_job"
    DELETE_SUCCEEDED_JOB = "delete_succeeded_job"

    @classmethod
    def parse(cls, given: str) -> Self:
        """Read the argument.

        Raises:
            InvalidSpec: there is no such action.
        """
        return cls(word(*cls)("on_finish_action", given))

    def deletes(self, *, succeeded: bool) -> bool:
        """Whether a job that ended like this is deleted."""
        return self is OnFinishAction.DELETE_JOB or (self is OnFinishAction.DELETE_SUCCEEDED_JOB and succeeded)


async def delete_if_unfinished(backend: Backend, ref: JobRef, *, unless_left_since: datetime | None = None) -> bool:
    """Delete a job that still runs or waits, and say whether there was one; a finished one is kept with its story.

    Args:
        backend: where it is.
        ref: the job.
        unless_left_since: keep one that a last try has left running at this instant or later, see `leave_running`.
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
    """Return the job of the attempt that the store holds, also if its create was under way; None if there is none."""
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
    """Whether the job of a try that ends by this error runs on, because another try comes and adopts it."""
    return may_retry and bool(getattr(error, "retryable", True))


async def abandon(backend: Backend, owner: Owner, store: AttemptStore, *, ref: JobRef | None = None, why: str) -> str:
    """Delete the unfinished job that nobody will wait for, and return what was done as a sentence; "" for nothing.

    Args:
        backend: where it is.
        owner: whose it is.
        store: of this try, which tells of the job if `ref` is not known.
        ref: the job.
        why: nobody will.
    """
    try:
        ref = ref or await known_job(backend, owner, store)
        if ref is not None and await delete_if_unfinished(backend, ref):
            return f"{ref} was deleted: {why}"
    except ClusterError as error:
        return f"the job may still run and could not be deleted: {error}"
    return ""


async def leave_running(backend: Backend, owner: Owner, store: AttemptStore, *, ref: JobRef | None = None) -> str:
    """Mark the unfinished job that could not be followed, and return what becomes of it as a sentence; "" for nothing.

    Nothing is known to be wrong with the job, so it is not stopped; the orphan search spares what is marked for long.

    Args:
        backend: where it is.
        owner: whose it is.
        store: of the last try, which tells of the job if `ref` is not known.
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
    """Say what nobody will end of a job that nobody waits for, as a sentence; "" if all of it goes by itself."""
    ref = submission.ref
    if not submission.tensorboard_url:
        return ""
    try:
        found = await backend.get(ref.kind, ref.namespace, ref.name)
    except ClusterError:  # the job is there all the same
        return ""
    if kinds.kind_of(found).expires(found):
        return ""
    return f"{ref}: its TensorBoard stands until the job is deleted, which nothing does by itself"


async def act_on_finished(backend: Backend, ref: JobRef, action: OnFinishAction, *, succeeded: bool) -> bool:
    """Delete an ended job, or limit its life, as the action says; say whether it was deleted here."""
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
    finally:  # what stands beside it stays only if the job goes by itself
        if TensorBoardPlan.of(found) is not None:
            await backend.ensure_tensorboard(ref)
    return False
