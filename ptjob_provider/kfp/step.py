"""What runs in the step's pod: submit or adopt the job, follow it with its log on standard output, write the outputs.

It maps what the component was given to the core's words, and what the core concludes to an exit code. Neither kfp nor
Airflow is imported for that.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.conclusion import deadline_after, raise_for
from ptjob_provider.core.errors import ClusterError, InvalidSpec, JobFailed, PTJobError
from ptjob_provider.core.finishing import act_on_finished
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kinds import pytorchjob
from ptjob_provider.core.recall import recall
from ptjob_provider.core.runner import follow
from ptjob_provider.core.spec import Installation
from ptjob_provider.core.submission import ensure_submitted
from ptjob_provider.kfp.artifacts import Artifacts, ModelArtifact
from ptjob_provider.kfp.mounted import must_enter_own_claim
from ptjob_provider.kfp.place import find_place
from ptjob_provider.kfp.request import Request
from ptjob_provider.kfp.steplog import Masking, StepLog
from ptjob_provider.kfp.stopping import Stopping, ToldToStop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.conclusion import Conclusion
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.submission import Submission
    from ptjob_provider.kfp.artifacts import StepOutputs
    from ptjob_provider.kfp.place import Place

EXIT_FAILED, EXIT_USAGE, EXIT_TRY_AGAIN, EXIT_STOPPED = 1, 2, 75, 143
"""The job failed; the request is wrong; another try may help (sysexits' EX_TEMPFAIL); SIGTERM's, as a shell has it."""


def run(given: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> StepOutputs:
    """Do the whole step, write its artifacts and return its output parameters.

    Args:
        given: the component's inputs and output artifacts, by name.
        environ: of this process.

    Raises:
        SystemExit: the job did not succeed; standard output says why, the diagnosis first.
    """
    log = StepLog(Masking(()))
    try:
        request, place = Request.parse(given), find_place(environ)
        log = StepLog(Masking(place.secrets))
        if request.model_artifact is ModelArtifact.COPY and place.local is None:
            must_enter_own_claim()
        return _Step(request=request, place=place, log=log).run(_artifacts(given))
    except PTJobError as error:
        log.failure(str(error))
        sys.exit(_exit_code(error))
    except ToldToStop as told:
        log.notice(f"the step was told to stop: {told.said}")
        sys.exit(EXIT_STOPPED)


@dataclass(frozen=True, kw_only=True)
class _Step:
    """One try of one step."""

    request: Request
    place: Place
    log: StepLog

    def run(self, artifacts: Artifacts) -> StepOutputs:
        """Do all of it; see `run`."""
        submission, conclusion = asyncio.run(self._until_end())
        try:
            raise_for(submission, conclusion)
        except JobFailed:
            asyncio.run(self._act_on_finished(submission, succeeded=False))
            raise
        self.log.notice(f"{submission.ref} succeeded")
        model_artifact, local = self.request.model_artifact, self.place.local
        outputs = artifacts.write(conclusion.result or {}, model_artifact=model_artifact, local=local)
        asyncio.run(self._act_on_finished(submission, succeeded=True))
        return outputs

    async def _until_end(self) -> tuple[Submission, Conclusion]:
        """Submit or adopt the job and follow it; told to stop, delete it first of all."""
        stopping = Stopping(self.place.backend)
        self.log.when_unread = stopping.stop
        return await stopping.run(self._train(stopping))

    async def _train(self, stopping: Stopping) -> tuple[Submission, Conclusion]:
        deadline = deadline_after(datetime.now(UTC), self.request.timeout)
        submission = await self.submit()
        stopping.knows(submission.ref)
        self._tell(submission)
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
            )
        return submission, conclusion

    async def submit(self) -> Submission:
        """Create the job or adopt the one that is there; afterwards this try's pod owns it."""
        backend = self.place.backend
        job = self.request.job.in_namespace(self.place.namespace or pytorchjob.DEFAULT_NAMESPACE)
        namespace = str(job.named_namespace)
        owner = self._owner(namespace)
        submission = await ensure_submitted(
            backend,
            job,
            owner=owner,
            store=await recall(backend, namespace, owner, is_repeated=self.place.is_repeated),
            exact_name=self.request.exact_name,
            installation=Installation(template=self.request.template(self.place.template)),
        )
        if submission.adopted and owner.reference:
            await _take_over(backend, submission.ref, owner.reference)
        return submission

    def _owner(self, namespace: str) -> Owner:
        """Return who this step is; an owner in another namespace would have the job deleted at once."""
        pod = self.place.pod
        reference = pod.as_owner if pod and pod.namespace == namespace else None
        return Owner(instance=self.place.instance, ids=self.request.ids, labels={}, reference=reference)

    def _tell(self, submission: Submission) -> None:
        ref, how = submission.ref, "adopted" if submission.adopted else "submitted"
        self.log.notice(f"{ref} was {how}: {ref.kind}, uid {ref.uid}, attempt {submission.attempt}")
        if submission.spec_changed:
            self.log.notice(f"{ref} was made from another specification; start a new run to train with this one")

    async def _act_on_finished(self, submission: Submission, *, succeeded: bool) -> None:
        action, ref = self.request.on_finish_action, submission.ref
        try:
            if await act_on_finished(self.place.backend, ref, action, succeeded=succeeded):
                self.log.notice(f"{ref} was deleted: on_finish_action={action}")
        except ClusterError as error:
            self.log.notice(f"{ref}: on_finish_action={action} could not be carried out: {error}")


async def _take_over(backend: Backend, ref: JobRef, reference: Mapping[str, str | bool]) -> None:
    """Have an adopted job owned by this try's pod instead of the last one's, which may go at any moment."""
    job = await backend.get(ref.kind, ref.namespace, ref.name)
    others = [each for each in job["metadata"].get("ownerReferences") or () if each["kind"] != reference["kind"]]
    await backend.patch(ref, {"metadata": {"ownerReferences": [*others, dict(reference)]}})


def _artifacts(given: Mapping[str, Any]) -> Artifacts:
    parts = {name: given[name] for name in ("metrics", "curves", "report")}
    return Artifacts(model=given["trained_model"], **parts)


def _exit_code(error: PTJobError) -> int:
    if isinstance(error, InvalidSpec):
        return EXIT_USAGE
    return EXIT_TRY_AGAIN if error.retryable else EXIT_FAILED
