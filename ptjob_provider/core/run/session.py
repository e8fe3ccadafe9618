"""Run one try of a job, the same way for all adapters: submit or adopt, follow, report the outcome, clean up.

An adapter gives a session the job's owner, the store of attempts, the sink of the log and the functions that take
sentences and the result. It may cut the sequence between the steps, as a deferred task of Airflow does. Each adapter
decides by itself what happens to the job if its try is stopped or cannot follow the job.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import ClusterUnavailable, JobFailed, JobTakenOver, OutputsNotVerified, PTJobError
from ptjob_provider.core.run import preemptions
from ptjob_provider.core.run.api_errors import ApiErrors, through_outages
from ptjob_provider.core.run.cleanup import act_on_finished
from ptjob_provider.core.run.follow import FollowOptions, follow
from ptjob_provider.core.run.outcome import raise_for, success_text
from ptjob_provider.core.run.submit import SubmitOptions, conclude_attempt, ensure_submitted, note_unverified
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import JobRef, Owner
    from ptjob_provider.core.run.attempts import AttemptStore
    from ptjob_provider.core.run.outcome import JobOutcome
    from ptjob_provider.core.run.rank0_log import Sink
    from ptjob_provider.core.run.submit import Submission
    from ptjob_provider.core.spec import TrainingJob
    from ptjob_provider.core.spec.on_finish import OnFinishAction

T = TypeVar("T")

_LEAST = 60.0
"""Seconds for an answer, if `api_error_timeout`, which may be 0, is shorter."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """One try of a job.

    Attributes:
        backend: where the job runs.
        owner: the owner of the job.
        store: the store of the owner's attempts.
        sink: takes rank 0's lines, and sentences while the job is followed.
        on_finish_action: says whether a finished job's object is deleted.
        api_error_timeout: seconds for which requests about the job may be refused.
        tell: called with sentences about the job.
        warn: called with sentences about something that a person should check; None: `tell` is called.
        on_known: called as soon as the job exists, so that a try that is stopped while the TensorBoard is created
            knows which job to stop.
        on_preempted: called with the submission and the outcome of a job that the platform has ended, before the pause.
        pauses: seconds before each retry of a submission that the cluster did not answer; none by default.
        how_to_submit: see `SubmitOptions`.
        how_to_follow: see `follow`.
    """

    backend: Backend
    owner: Owner
    store: AttemptStore
    sink: Sink
    on_finish_action: OnFinishAction
    api_error_timeout: float
    tell: Callable[[str], None]
    warn: Callable[[str], None] | None = None
    on_known: Callable[[Submission], Awaitable[None]] | None = None
    on_preempted: Callable[[Submission, JobOutcome], Awaitable[None]] | None = None
    pauses: Sequence[float] = ()
    how_to_submit: SubmitOptions = field(default_factory=SubmitOptions)
    how_to_follow: FollowOptions = field(default_factory=FollowOptions)

    @property
    def hands_off(self) -> bool:
        """Return whether the job is only watched."""
        return self.how_to_follow.get("hands_off", False)

    async def until_end(self, job: TrainingJob) -> tuple[Submission, JobOutcome]:
        """Submit the job and follow it to its end; make a new attempt where the platform ends it, see `after`."""
        while True:
            submission = await self.submit(job)
            outcome = await self.after(submission, await self.follow(submission))
            if outcome is not None:
                return submission, outcome

    async def submit(self, job: TrainingJob) -> Submission:
        """Create the job or adopt the existing job, see `ensure_submitted`, and create the TensorBoard it requests."""
        return await through_outages(lambda: self._submit(job), pauses=self.pauses, tell=self.tell)

    async def _submit(self, job: TrainingJob) -> Submission:
        submission = await ensure_submitted(
            self.backend,
            job,
            owner=self.owner,
            store=self.store,
            api_error_timeout=self.api_error_timeout,
            on_known=self.on_known,
            tell=self.tell,
            **self.how_to_submit,
        )
        if job.tensorboard is None:
            return submission
        return replace(submission, tensorboard_url=await self.backend.ensure_tensorboard(submission.ref))

    async def follow(self, submission: Submission) -> JobOutcome:
        """Follow the job to its end."""
        return await follow(
            self.backend,
            submission,
            sink=self.sink,
            api_error_timeout=self.api_error_timeout,
            **self.how_to_follow,
        )

    async def after(self, submission: Submission, outcome: JobOutcome) -> JobOutcome | None:
        """Return the outcome to report; None, after the pause, if the next attempt is to be submitted.

        `max_preemptions` decides, see `preemptions`. The attempt is concluded before the pause. So a try that is
        killed meanwhile has counted it, and repeating this call does not count it again.

        Raises:
            JobTakenOver: a later try has adopted the job.
            ClusterUnavailable: the server does not show that the job has ended; the attempt is not concluded.
        """
        limit, deadline = self.how_to_follow.get("limits", Limits()).max_preemptions, self.how_to_follow.get("deadline")
        now = datetime.now(UTC)
        due = preemptions.next_attempt_at(submission, outcome, max_preemptions=limit, now=now)
        if self.hands_off or due is None:
            return preemptions.used_up(submission, outcome, max_preemptions=limit)
        if deadline is not None and deadline <= max(due, now):
            return preemptions.overdue(outcome)
        if not await self._has_failed(submission):
            seen = f"{submission.ref} was seen to fail, and the API server does not show that"
            raise ClusterUnavailable(f"{seen}. The job was left as it is: ptjob get {submission.ref.name}")
        record = self.store.load()
        if record is not None and (record.attempt, record.ended) == (submission.attempt, False):
            conclude_attempt(self.store, outcome.summary(submission.ref), preemptions=outcome.preemptions)
        if self.on_preempted is not None:
            await self.on_preempted(submission, outcome)
        self.tell(preemptions.sentence(submission.ref, outcome, due=due, now=now, max_preemptions=limit))
        await asyncio.sleep((due - datetime.now(UTC)).total_seconds())
        if (state := self.how_to_follow.get("state")) is not None:
            state.forget()
        return None

    async def _has_failed(self, submission: Submission) -> bool:
        """Return whether the job has failed, or is gone by now, as the server has it."""
        ref, limit = submission.ref, self.api_error_timeout
        errors = ApiErrors(str(ref), self._warn, timeout=limit)
        try:
            async with asyncio.timeout(limit := max(limit, _LEAST)):
                job = (await errors.answer(lambda: self.backend.read(ref))).job
        except TimeoutError:
            raise ClusterUnavailable(f"{ref}: the API server did not say within {limit:.0f} s how it ended") from None
        if job is not None and submission.is_taken_over(job):
            raise JobTakenOver(f"{ref} gets no new attempt from this try: a later try follows it")
        if job is None or job["metadata"].get("deletionTimestamp"):
            return True
        return kinds.read_status(job).phase is JobPhase.FAILED

    def report_submitted(self, submission: Submission, *, advice: str) -> None:
        """Report the submission; the advice is for an adopted job that was created from another specification."""
        ref, how = submission.ref, "adopted" if submission.adopted else "submitted"
        self.tell(f"{ref} was {how}: {ref.kind}, uid {ref.uid}, attempt {submission.attempt}")
        if submission.spec_changed:
            self._warn(f"{ref} was made from another specification; {advice}")

    async def finish(
        self,
        ref: JobRef,
        outcome: JobOutcome,
        *,
        deliver: Callable[[dict[str, Any]], T],
        shown: Collection[str] = (),
    ) -> T:
        """Deliver the result of a job that succeeded, then delete the job or keep it, as `on_finish_action` says.

        Args:
            ref: the job.
            outcome: the result of following the job.
            deliver: takes the job's result; its return value is returned, and if it raises, the job is kept.
            shown: lines already printed, see `raise_for`.

        Raises:
            JobFailed: the job failed; the next try starts a new attempt, unless the job could not be stopped.
            OutputsNotVerified: the outputs could not be inspected; the job is kept, and a retry only inspects them.
        """
        try:
            deletes = self.on_finish_action.deletes(succeeded=False) and not outcome.is_open
            raise_for(ref, outcome, deletes=deletes, shown=shown)
        except OutputsNotVerified:
            note_unverified(self.store)
            raise
        except JobFailed:
            if outcome.is_open:
                raise
            conclude_attempt(self.store, outcome.summary(ref), preemptions=outcome.preemptions or None)
            await self._clean_up(ref, succeeded=False)
            raise
        result = dict(outcome.result or {})
        (self._warn if result.get("failed_replicas") else self.tell)(success_text(ref, result))
        delivered = deliver(result)
        await self._clean_up(ref, succeeded=True)
        return delivered

    def _warn(self, text: str) -> None:
        (self.warn or self.tell)(text)

    async def _clean_up(self, ref: JobRef, *, succeeded: bool) -> None:
        if self.hands_off:
            return
        action = self.on_finish_action
        try:
            if await act_on_finished(self.backend, ref, action, succeeded=succeeded):
                self.tell(f"{ref} was deleted: on_finish_action={action}")
        except PTJobError as error:
            self._warn(f"{ref}: on_finish_action={action} could not be carried out: {error}")
