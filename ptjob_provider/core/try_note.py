"""The note that a try leaves for the next one in case its job is deleted by then, by a person or by us."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from ptjob_provider.core.attempts import AttemptRecord
from ptjob_provider.core.conclusion import Conclusion, Outcome
from ptjob_provider.core.identity import JobRef

if TYPE_CHECKING:
    from ptjob_provider.core.submission import Submission


@dataclass(frozen=True, kw_only=True)
class TryNote:
    """Outcome of a try's job.

    Attributes:
        ref: the job.
        attempt: its attempt number.
        first_started_at: RFC 3339 creation time of the first attempt.
        conclusion: its conclusion, shortened to the size of an annotation: without curves, with the last lines.
    """

    ref: JobRef
    attempt: int
    first_started_at: str
    conclusion: Conclusion

    @classmethod
    def of(cls, submission: Submission, conclusion: Conclusion) -> Self:
        """Build the note from the end of a try's job."""
        return cls(
            ref=submission.ref,
            attempt=submission.attempt,
            first_started_at=submission.first_started_at,
            conclusion=_shortened(conclusion),
        )

    @property
    def retry_may_help(self) -> bool:
        """Return whether another attempt may end differently."""
        if self.conclusion.outcome is Outcome.SUCCEEDED:
            return False
        return self.conclusion.diagnosis is None or self.conclusion.diagnosis.retryable

    def record(self, *, ended: bool) -> AttemptRecord:
        """Return the attempt as a store record."""
        return AttemptRecord(
            attempt=self.attempt,
            name=self.ref.name,
            namespace=self.ref.namespace,
            uid=self.ref.uid,
            kind=self.ref.kind,
            ended=ended,
            first_started_at=self.first_started_at,
        )

    def to_text(self) -> str:
        """Serialize the note for an annotation."""
        parts = {"ref": self.ref.to_dict(), "conclusion": self.conclusion.to_dict()}
        told = {"attempt": self.attempt, "first_started_at": self.first_started_at, **parts}
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Parse the value of `to_text`; None if it is unreadable."""
        try:
            fields = json.loads(text)
            return cls(
                ref=JobRef.from_dict(fields["ref"]),
                attempt=int(fields["attempt"]),
                first_started_at=fields["first_started_at"],
                conclusion=Conclusion.from_dict(fields["conclusion"]),
            )
        except (ValueError, TypeError, KeyError):
            return None


def _shortened(conclusion: Conclusion) -> Conclusion:
    """Return the conclusion without cursor, curves and duplicate parts."""
    result = dict(conclusion.result or {}) if conclusion.outcome is Outcome.SUCCEEDED else None
    if result and result.get("tfevents"):
        result["tfevents"] = {key: part for key, part in result["tfevents"].items() if key != "curves"}
    why = conclusion.diagnosis
    return replace(conclusion, cursor=None, result=result, diagnosis=why.bounded() if why else None)
