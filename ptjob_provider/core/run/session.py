"""One try with a job, once for all adapters: submit or adopt it, follow it, report its outcome and clean up.

Adapters differ in the arguments: who owns the job, where attempts are recorded, who takes sentences and the result.
Each decides by itself what becomes of the job of a try that is stopped or cannot follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core.errors import JobFailed, PTJobError
from ptjob_provider.core.run.cleanup import act_on_finished
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import raise_for, success_text
from ptjob_provider.core.run.submit import conclude_attempt, ensure_submitted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import JobRef, Owner
    from ptjob_provider.core.run.attempts import AttemptStore
    from ptjob_provider.core.run.outcome import JobOutcome
    from ptjob_provider.core.run.submit import Submission
    from ptjob_provider.core.spec import TrainingJob
    from ptjob_provider.core.spec.on_finish import OnFinishAction

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Session:
    """One try with a job.

    Attributes:
        backend: where the job runs.
        owner: of the job.
        store: records the owner's attempts.
        on_finish_action: what to do with the object of a finished job.
        api_error_timeout: seconds for which requests about the job may be refused.
        tell: takes sentences about the job.
        warn: takes sentences about what a person should check; None: `tell` does.
    """

    backend: Backend
    owner: Owner
    store: AttemptStore
    on_finish_action: OnFinishAction
    api_error_timeout: float
    tell: Callable[[str], None]
    warn: Callable[[str], None] | None = None

    async def submit(self, job: TrainingJob, **options: Any) -> Submission:
        """Create the job or adopt the existing one; the options are those of `ensure_submitted`."""
        return await ensure_submitted(
            self.backend, job, owner=self.owner, store=self.store, api_error_timeout=self.api_error_timeout, **options
        )

    async def follow(self, submission: Submission, **options: Any) -> JobOutcome:
        """Follow the job to its end; the options are those of `follow`."""
        return await follow(self.backend, submission, api_error_timeout=self.api_error_timeout, **options)

    def report_submitted(self, submission: Submission, *, advice: str) -> None:
        """Report the submission, with an advice for an adopted job of another specification."""
        ref, how = submission.ref, "adopted" if submission.adopted else "submitted"
        self.tell(f"{ref} was {how}: {ref.kind}, uid {ref.uid}, attempt {submission.attempt}")
        if submission.spec_changed:
            self._warn(f"{ref} was made from another specification; {advice}")

    async def finish(
        self,
        ref: JobRef,
        conclusion: JobOutcome,
        *,
        deliver: Callable[[dict[str, Any]], T],
        hands_off: bool = False,
        shown: Collection[str] = (),
    ) -> T:
        """Deliver the result of a job that succeeded, then delete or keep the job.

        Args:
            ref: the job.
            conclusion: its conclusion.
            deliver: takes the result, and returns what this returns; its failure keeps the job.
            hands_off: leave the job as it is.
            shown: lines already printed, see `raise_for`.

        Raises:
            JobFailed: the job failed; the next try starts a new attempt.
            OutputsNotVerified: the outputs could not be inspected; the job is kept, and the next try only verifies.
        """
        try:
            raise_for(ref, conclusion, deletes=self.on_finish_action.deletes(succeeded=False), shown=shown)
        except JobFailed:
            conclude_attempt(self.store)
            await self._clean_up(ref, succeeded=False, hands_off=hands_off)
            raise
        result = dict(conclusion.result or {})
        (self._warn if result.get("failed_replicas") else self.tell)(success_text(ref, result))
        delivered = deliver(result)
        await self._clean_up(ref, succeeded=True, hands_off=hands_off)
        return delivered

    def _warn(self, text: str) -> None:
        (self.warn or self.tell)(text)

    async def _clean_up(self, ref: JobRef, *, succeeded: bool, hands_off: bool) -> None:
        if hands_off:
            return
        action = self.on_finish_action
        try:
            if await act_on_finished(self.backend, ref, action, succeeded=succeeded):
                self.tell(f"{ref} was deleted: on_finish_action={action}")
        except PTJobError as error:
            self._warn(f"{ref}: on_finish_action={action} could not be carried out: {error}")
