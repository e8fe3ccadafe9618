"""Action on a job that has ended."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from ptjob_provider.core.spec.parsers import word


class OnFinishAction(StrEnum):
    """Action on an ended job, after its log, pod history and outputs have been collected.

    The values are KubernetesPodOperator's. No action touches a claim or its files.
    """

    KEEP_JOB = "keep_job"
    """The job stays for its TTL; a job from a manifest without a TTL gets the default of seven days."""
    DELETE_JOB = "delete_job"
    DELETE_SUCCEEDED_JOB = "delete_succeeded_job"

    @classmethod
    def parse(cls, given: str) -> Self:
        """Parse the argument.

        Raises:
            InvalidSpec: the action is unknown.
        """
        return cls(word(*cls)("on_finish_action", given))

    def deletes(self, *, succeeded: bool) -> bool:
        """Return whether a job with this outcome is deleted."""
        return self is OnFinishAction.DELETE_JOB or (self is OnFinishAction.DELETE_SUCCEEDED_JOB and succeeded)
