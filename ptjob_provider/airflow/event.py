"""The event that a trigger sends to its resumed task, which is a new process and has no other information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.airflow.masking import masked, with_texts_masked
from ptjob_provider.core.conclusion import Conclusion
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.logs import LogCursor
from ptjob_provider.core.submission import Submission

if TYPE_CHECKING:
    from collections.abc import Mapping


class TriggerFailed(PTJobError):
    """The trigger could not follow the job, and left it unchanged."""

    cause = "trigger_failed"

    def __init__(self, text: str, *, retryable: bool) -> None:
        super().__init__(text)
        self.retryable = retryable


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """A trigger's report: how the job ended, or why that is unknown.

    Attributes:
        submission: the job.
        conclusion: how it ended; None if the trigger failed.
        error: why the trigger failed; empty if it did not.
        retryable: whether another try may succeed where the trigger failed.
        cursor: the last log line that is in the task's log.
        knows_place: whether `cursor` is known; False if the cursor of an earlier trigger could not be read.
    """

    submission: Submission
    conclusion: Conclusion | None = None
    error: str = ""
    retryable: bool = True
    cursor: LogCursor | None = None
    knows_place: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields; known secrets are masked, because Airflow's database stores the event."""
        return {
            "submission": self.submission.to_dict(),
            "conclusion": with_texts_masked(self.conclusion.to_dict()) if self.conclusion else None,
            "error": masked(self.error),
            "retryable": self.retryable,
            "cursor": self.cursor.to_dict() if self.cursor else None,
            "knows_place": self.knows_place,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> Self:
        """Rebuild what `to_dict` returned.

        Raises:
            PTJobError: there is no event, or it is not a `JobEvent`.
        """
        if not fields or not {"submission", "conclusion", "error", "retryable", "cursor", "knows_place"} <= set(fields):
            text = f"{fields!r:.200}"
            raise PTJobError(
                f"This is no event of PyTorchJobTrigger: {text}. Look whether the job still runs: ptjob list"
            )
        return cls(
            submission=Submission.from_dict(fields["submission"]),
            conclusion=Conclusion.from_dict(fields["conclusion"]) if fields["conclusion"] else None,
            error=fields["error"],
            retryable=fields["retryable"],
            cursor=LogCursor.from_dict(fields["cursor"]) if fields["cursor"] else None,
            knows_place=fields["knows_place"],
        )

    def concluded(self) -> Conclusion:
        """Return the conclusion.

        Raises:
            TriggerFailed: there is none.
        """
        if self.conclusion is None:
            raise TriggerFailed(self.error, retryable=self.retryable)
        return self.conclusion
