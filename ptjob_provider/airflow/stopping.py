"""What becomes of a job when its task ends before it (two tables, and the deletion), and after its own end."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Self

from ptjob_provider.core.errors import InvalidSpec, JobNotFound, one_of
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import pytorchjob

if TYPE_CHECKING:
    from ptjob_provider.core.backend import Backend


class Fate(StrEnum):
    """What becomes of the job of a task that does not wait for it any more."""

    KEEP = "keep"
    DELETE = "delete"


class OnFinishAction(StrEnum):
    """What becomes of a job that has ended, once its log, its story and its outputs are in.

    The words are KubernetesPodOperator's. No action touches a claim or what is on it.
    """

    KEEP_JOB = "keep_job"
    """It stays for its time to live; a manifest's job that has none is given the seven days of every other job."""
    DELETE_JOB = "delete_job"
    DELETE_SUCCEEDED_JOB = "delete_succeeded_job"

    @classmethod
    def parse(cls, word: str) -> Self:
        """Read the argument.

        Raises:
            InvalidSpec: there is no such action.
        """
        try:
            return cls(word)
        except ValueError:
            raise InvalidSpec.of("on_finish_action", word, one_of(cls)) from None

    def deletes(self, *, succeeded: bool) -> bool:
        """Whether a job that ended like this is deleted."""
        return self is OnFinishAction.DELETE_JOB or (self is OnFinishAction.DELETE_SUCCEEDED_JOB and succeeded)


def fate_in_worker(state: str | None, *, may_retry: bool) -> Fate:
    """Decide for a worker that was told to stop.

    Not running any more (a person marked or cleared the task): delete. Still running (a drained worker): kept for the
    next try to adopt, deleted if there is none. No answer from Airflow: keep.
    """
    if state is None or (state == "running" and may_retry):
        return Fate.KEEP
    return Fate.DELETE


def fate_in_trigger(state: str | None) -> Fate:
    """Decide for a trigger that was told that its task is over.

    A triggerer that was frozen and replaced is told so although the task is still deferred (apache/airflow#73454), or
    waits for its next try, which adopts the job. No answer from Airflow: keep.
    """
    return Fate.KEEP if state in {None, "deferred", "up_for_retry"} else Fate.DELETE


async def delete_if_unfinished(backend: Backend, ref: JobRef) -> bool:
    """Delete a job that still runs or waits, and say whether there was one; a finished one is kept with its story."""
    try:
        found = await backend.get(ref.kind, ref.namespace, ref.name)
    except JobNotFound:
        return False
    if JobRef.of(found) != ref or pytorchjob.read_status(found).phase.is_terminal:
        return False
    await backend.delete(ref)
    return True


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
    if (found["spec"].get("runPolicy") or {}).get("ttlSecondsAfterFinished") is None:
        await backend.patch(ref, {"spec": {"runPolicy": {"ttlSecondsAfterFinished": pytorchjob.DEFAULT_TTL}}})
    return False
