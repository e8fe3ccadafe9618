"""Runs one try's job: submits or adopts it, and follows it to its end. A job that cannot be followed keeps running."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from ptjob_provider.core import kinds
from ptjob_provider.core.api_errors import ApiErrors
from ptjob_provider.core.conclusion import Outcome, deadline_after
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, PTJobError
from ptjob_provider.core.finishing import act_on_finished, leave_running
from ptjob_provider.core.identity import TRY_ANNOTATION, Owner, owner_key, owner_selector
from ptjob_provider.core.recall import TOLD, recall
from ptjob_provider.core.runner import follow
from ptjob_provider.core.spec import Installation
from ptjob_provider.core.submission import ensure_submitted, with_tensorboard
from ptjob_provider.core.try_note import TryNote
from ptjob_provider.kfp.ownership import hand_over, take_over
from ptjob_provider.kfp.stopping import Stopping

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ptjob_provider.core.attempts import AttemptStore
    from ptjob_provider.core.conclusion import Conclusion
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes import OwnPod
    from ptjob_provider.core.recall import RecalledAttempts
    from ptjob_provider.core.submission import Submission
    from ptjob_provider.kfp.place import Place
    from ptjob_provider.kfp.request import Request
    from ptjob_provider.kfp.steplog import StepLog

T = TypeVar("T")

PAUSES = (1.0, 5.0, 15.0, 30.0)
"""Seconds before each retry of a request to a cluster that does not respond."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Runs the job of one try of a step.

    Attributes:
        request: the requested job and its options.
        place: where the job runs.
        log: the step's log.
    """

    request: Request
    place: Place
    log: StepLog

    async def until_end(self) -> tuple[JobRef, Conclusion]:
        """Submit or adopt the job and follow it; when told to stop, delete it first."""
        stopping = Stopping(self.place.backend)
        self.log.when_unread = stopping.stop
        return await stopping.run(self._train(stopping))

    async def _train(self, stopping: Stopping) -> tuple[JobRef, Conclusion]:
        deadline = deadline_after(datetime.now(UTC), self.request.timeout)
        store = await self._recalled()
        if store.told is not None:
            self.log.notice(f"{store.told.ref} is gone, and is not made again; this is how it ended in an earlier try")
            return store.told.ref, store.told.conclusion
        try:
            submission = await self._patiently(lambda: self.submit(store, stopping))
            async with stopping.warm():
                conclusion = await follow(
                    self.place.backend,
                    submission,
                    sink=self.log,
                    deadline=deadline,
                    limits=self.request.limits,
                    keep_running_pods=self.request.keep_running_pods,
                    curves=True,
                    mask=self.log.mask,
                    api_error_timeout=self.place.api_error_timeout,
                )
        except Exception:
            await self._leave(store)
            raise
        await self._note(submission, conclusion)
        if self._owning_pod is not None:
            await hand_over(self.place.backend, submission.ref, self._owning_pod, self.log)
        if conclusion.outcome is not Outcome.SUCCEEDED:
            with contextlib.suppress(ClusterError):  # on failure the next try may report the end again
                told = {"metadata": {"annotations": {TRY_ANNOTATION: TOLD}}}
                await self.place.backend.patch(submission.ref, told)
        return submission.ref, conclusion

    async def _recalled(self) -> RecalledAttempts:
        """Return the state of earlier tries; if there were any, a refusal may pass while their job runs."""
        if not self.place.retry:
            return await self._patiently(self.recalled)
        errors = ApiErrors(f"{self._namespace}, earlier tries", self.log.notice, timeout=self.place.api_error_timeout)
        return await self._patiently(lambda: errors.answer(self.recalled, though_away=False))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry while the cluster does not respond for a moment: a running job is not given up for that."""
        for pause in PAUSES:
            try:
                return await ask()
            except ClusterUnavailable as error:
                self.log.notice(f"trying again in {pause:.0f} s: {error}")
                await asyncio.sleep(pause)
        return await ask()

    async def recalled(self) -> RecalledAttempts:
        """Return the state of earlier tries."""
        place, owner = self.place, self._owner
        notes: list[str] = []
        replicas: list[Manifest] = []
        is_repeated = bool(await place.try_number())
        if place.pod is not None:
            notes = await place.pod.notes(owner_key(owner)) if is_repeated else []
            replicas = await place.pod.replicas(self._namespace, owner_selector(owner))
        return await recall(
            place.backend, self._namespace, owner, is_repeated=is_repeated, notes=notes, replicas=replicas
        )

    async def submit(self, store: AttemptStore, stopping: Stopping) -> Submission:
        """Create the job or adopt the existing one; afterwards `stopping` knows it, and this try's pod owns it."""
        job = self.request.job.in_namespace(self._namespace)
        submission = await ensure_submitted(
            self.place.backend,
            job,
            owner=self._owner,
            store=store,
            exact_name=self.request.exact_name,
            installation=Installation(
                template=self.request.template(self.place.template),
                sync_image=self.place.sync_image,
                tensorboard_image=self.place.tensorboard_image,
            ),
            api_error_timeout=self.place.api_error_timeout,
        )
        stopping.knows(submission.ref)
        self._tell(submission)
        if submission.adopted and self._owning_pod is not None:
            await take_over(self.place.backend, submission.ref, self._owning_pod, self.log)
        await self._learn_secrets(submission.ref)
        return await with_tensorboard(self.place.backend, submission, job)

    async def act_on_finished(self, ref: JobRef, *, succeeded: bool) -> None:
        """Delete or keep the finished job's object as requested."""
        action = self.request.on_finish_action
        try:
            if await act_on_finished(self.place.backend, ref, action, succeeded=succeeded):
                self.log.notice(f"{ref} was deleted: on_finish_action={action}")
        except PTJobError as error:
            self.log.notice(f"{ref}: on_finish_action={action} could not be carried out: {error}")

    async def _learn_secrets(self, ref: JobRef) -> None:
        """Mask the values that the job's programs get from Secrets, before any of their lines is logged."""
        try:
            self.log.mask.learn(await self.place.secrets_of(ref))
        except ClusterError as error:
            self.log.notice(f"{ref}: what its programs print of their Secrets is not masked here: {error}")

    async def _note(self, submission: Submission, conclusion: Conclusion) -> None:
        """Record the outcome for a next try, if one may follow: the job may be gone by then."""
        if self.place.pod is None:
            return
        try:
            if await self.place.try_number() is None:
                return
            await self.place.pod.note(owner_key(self._owner), TryNote.of(submission, conclusion).to_text())
        except ClusterError as error:
            self.log.notice(f"{submission.ref}: how it ended could not be noted for a next try: {error}")

    async def _leave(self, store: AttemptStore) -> None:
        """Leave the job running and log that: a next try adopts it; otherwise it is deleted with the step's pod.

        It is unknown whether there is a next try: Kubeflow Pipelines is installed so that Argo does not repeat a failed
        step, whatever its author has configured.
        """
        said = await leave_running(self.place.backend, self._owner, store)
        if said:
            self.log.notice(said)

    @property
    def _namespace(self) -> str:
        """The job's namespace."""
        job = self.request.job.in_namespace(self.place.namespace or kinds.DEFAULT_NAMESPACE)
        return str(job.named_namespace)

    @property
    def _owning_pod(self) -> OwnPod | None:
        """The step's pod if it can own the job: with an owner in another namespace the job would be deleted at once."""
        pod = self.place.pod
        return pod if pod and pod.namespace == self._namespace else None

    @property
    def _owner(self) -> Owner:
        """This step as the job's owner."""
        reference = self._owning_pod.as_owner if self._owning_pod else None
        return Owner(instance=self.place.instance, ids=self.request.ids, labels={}, reference=reference)

    def _tell(self, submission: Submission) -> None:
        ref, how = submission.ref, "adopted" if submission.adopted else "submitted"
        self.log.notice(f"{ref} was {how}: {ref.kind}, uid {ref.uid}, attempt {submission.attempt}")
        if submission.spec_changed:
            self.log.notice(f"{ref} was made from another specification; start a new run to train with this one")
