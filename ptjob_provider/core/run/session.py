"""Run one try of a job, the same way for all adapters: submit or adopt, follow, report the outcome, clean up.

Adapters differ in their arguments: the job's owner, the store of attempts, the functions that take sentences and the
result. Each adapter decides by itself what happens to the job if its try is stopped or cannot follow the job.
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
    """One try of a job.

    Attributes:
        backend: where the job runs.
        owner: the owner of the job.
        store: the store of the owner's attempts.
        on_finish_action: says whether a finished job's object is deleted.
        api_error_timeout: seconds for which requests about the job may be refused.
        tell: called with sentences about the job.
        warn: called with sentences about something that a person should check; None: `tell` is called.
    """

    backend: Backend
    owner: Owner
    store: AttemptStore
    on_finish_action: OnFinishAction
    api_error_timeout: float
    tell: Callable[[str], None]
    warn: Callable[[str], None] | None = None

    async def submit(self, job: TrainingJob, **options: Any) -> Submission:
        """Create the job or adopt the existing job; the options are those of `ensure_submitted`."""
        return await ensure_submitted(
            self.backend, job, owner=self.owner, store=self.store, api_error_timeout=self.api_error_timeout, **options
        )

    async def follow(self, submission: Submission, **options: Any) -> JobOutcome:
        """Follow the job to its end; the options are those of `follow`."""
        return await follow(self.backend, submission, api_error_timeout=self.api_error_timeout, **options)

    def report_submitted(self, submission: Submission, *, advice: str) -> None:
        """Report the submission; the advice is for an adopted job that was created from another specification."""
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
        """Deliver the result of a job that succeeded, then delete the job or keep it, as `on_finish_action` says.

        Args:
            ref: the job.
            conclusion: the result of following the job.
            deliver: takes the job's result; its return value is returned, and if it raises, the job is kept.
            hands_off: do not change or delete the job.
            shown: lines already printed, see `raise_for`.

        Raises:
            JobFailed: the job failed; the next try starts a new attempt, unless the job could not be stopped.
            OutputsNotVerified: the outputs could not be inspected; the job is kept, and a retry only inspects them.
        """
        try:
            raise_for(ref, conclusion, deletes=self.on_finish_action.deletes(succeeded=False), shown=shown)
        except JobFailed:
            if conclusion.is_open:
                raise
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
