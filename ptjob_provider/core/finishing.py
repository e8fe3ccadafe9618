"""What becomes of a job's object after the job's end, or when nobody will wait for that."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Self

from ptjob_provider.core.errors import InvalidSpec, JobNotFound, one_of
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import pytorchjob

if TYPE_CHECKING:
    from ptjob_provider.core.backend import Backend


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
