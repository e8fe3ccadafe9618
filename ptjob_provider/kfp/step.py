"""Run in the step's pod: submit or adopt the job, follow it with its log on standard output, write the outputs.

The step's pod owns a running job: when the pod is deleted, Kubernetes deletes the job. The next try reads the history
of a finished job; but when a person retries the run, the pods of failed steps are deleted first. Therefore a finished
job gets another owner: the pod's controller, which is the run's Workflow of Argo.

This module maps the component's inputs to the core's types, and the core's outcome to an exit code. It imports neither
kfp nor Airflow.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds
from ptjob_provider.core.code.folder import with_packed_folder
from ptjob_provider.core.errors import (
    ClusterError,
    InvalidSpec,
    JobNotFound,
    PTJobError,
    UnsupportedByBackend,
)
from ptjob_provider.core.identity import TRY_ANNOTATION, Owner, owner_key, owner_selector
from ptjob_provider.core.outgoing import EXACT_AS_FLOAT, outgoing
from ptjob_provider.core.run.api_errors import ApiErrors, through_outages
from ptjob_provider.core.run.cleanup import leave_running
from ptjob_provider.core.run.follow import FollowOptions
from ptjob_provider.core.run.outcome import Outcome, deadline_after
from ptjob_provider.core.run.recall import REPORTED, AttemptResult, RecalledAttempts, recall
from ptjob_provider.core.run.session import Session
from ptjob_provider.core.run.submit import SubmitOptions
from ptjob_provider.core.run.training_state import TrainingState
from ptjob_provider.core.spec import CodeSource
from ptjob_provider.kfp import artifacts
from ptjob_provider.kfp.artifacts import ModelArtifact
from ptjob_provider.kfp.claim_paths import must_enter_own_claim
from ptjob_provider.kfp.environment import read_environment
from ptjob_provider.kfp.request import Request
from ptjob_provider.kfp.steplog import Masking, StepLog
from ptjob_provider.kfp.termination import StepTermination, Terminated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import JobRef, Manifest, Reference
    from ptjob_provider.core.kubernetes import OwnPod
    from ptjob_provider.core.run.attempts import AttemptStore
    from ptjob_provider.core.run.outcome import JobOutcome
    from ptjob_provider.core.run.submit import Submission
    from ptjob_provider.core.spec import TrainingJob
    from ptjob_provider.kfp.artifacts import StepOutputs
    from ptjob_provider.kfp.environment import StepEnvironment


async def take_over(backend: Backend, ref: JobRef, pod: OwnPod, log: StepLog) -> None:
    """Set this try's pod as owner of an adopted job, because the last try's pod may be deleted at any time."""
    try:
        await _set_owner(backend, ref, pod.as_owner)
    except ClusterError as error:  # following the job matters more than its owner
        log.notice(
            f"{ref} is deleted with the pod of an earlier try, because this one could not become its owner: {error}"
        )


async def hand_over(backend: Backend, ref: JobRef, pod: OwnPod, log: StepLog) -> None:
    """Set the run as owner of a finished job, so that it outlives this try's pod; a deleted job is ignored."""
    try:
        run = await pod.controller()
        if run is not None:
            await _set_owner(backend, ref, run)
    except JobNotFound:
        return
    except ClusterError as error:
        log.notice(f"{ref} is deleted with this pod, because its run could not become its owner: {error}")


async def _set_owner(backend: Backend, ref: JobRef, owner: Reference) -> None:
    """Set this owner of the job in place of any pod."""
    job = await backend.get(ref.kind, ref.namespace, ref.name)
    before = job["metadata"].get("ownerReferences") or ()
    others = [each for each in before if each["kind"] != "Pod" and each["uid"] != owner["uid"]]
    await backend.patch(ref, {"metadata": {"ownerReferences": [*others, owner]}})


PAUSES = (1.0, 5.0, 15.0, 30.0)
"""Seconds before each retry of a request to a cluster that does not respond."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Runs the job of one try of a step.

    Attributes:
        request: the requested job and its options.
        environment: where the job runs.
        log: the step's log.
    """

    request: Request
    environment: StepEnvironment
    log: StepLog

    async def until_end(self) -> tuple[Session, JobRef, JobOutcome]:
        """Submit or adopt the job and follow it; on termination, delete it first."""
        termination = StepTermination(self.environment.backend)
        self.log.when_unread = termination.stop
        return await termination.run(self._train(termination))

    async def _train(self, termination: StepTermination) -> tuple[Session, JobRef, JobOutcome]:
        began = datetime.now(UTC)
        store = await self._earlier_tries()
        store.before_create = termination.before_create
        session = self.session(store, termination, began=began)
        if store.to_report is not None:
            gone = f"{store.to_report.ref} is gone, and is not made again"
            self.log.notice(f"{gone}; this is how it ended in an earlier try")
            return session, store.to_report.ref, store.to_report.outcome
        try:
            submission, outcome = await session.until_end(self.job)
        except Exception:
            await self._leave(store)
            raise
        await self._record_outcome(submission, outcome)
        if self._owning_pod is not None:
            await hand_over(self.environment.backend, submission.ref, self._owning_pod, self.log)
        if outcome.outcome is not Outcome.SUCCEEDED:
            with contextlib.suppress(ClusterError):  # on failure the next try may report the end again
                reported = {"metadata": {"annotations": {TRY_ANNOTATION: REPORTED}}}
                await self.environment.backend.patch(submission.ref, reported)
        return session, submission.ref, outcome

    async def _earlier_tries(self) -> RecalledAttempts:
        """Return the state of earlier tries; if there were any, repeat refused requests, because their job may run."""
        notice, timeout = self.log.notice, self.environment.api_error_timeout
        errors = ApiErrors(f"{self._namespace}, earlier tries", notice, timeout=timeout)

        async def listed() -> RecalledAttempts:
            if not (self.environment.retry or await self.environment.try_number()):
                return await self.earlier_tries()
            return await errors.answer(self.earlier_tries, though_away=False)

        return await through_outages(listed, pauses=PAUSES, tell=notice)

    async def earlier_tries(self) -> RecalledAttempts:
        """Return the state of earlier tries."""
        environment, owner = self.environment, self._owner
        notes: list[str] = []
        replicas: list[Manifest] = []
        is_repeated = bool(await environment.try_number())
        if environment.pod is not None:
            notes = await environment.pod.notes(owner_key(owner)) if is_repeated else []
            replicas = await environment.pod.replicas(self._namespace, owner_selector(owner))
        return await recall(
            environment.backend,
            self._namespace,
            owner,
            is_repeated=is_repeated,
            own_kinds=kinds.creatable(self.request.job, preferred=environment.installation.kind),
            notes=notes,
            replicas=replicas,
        )

    def session(self, store: AttemptStore, termination: StepTermination, *, began: datetime) -> Session:
        """Return the session of this try, which began at this instant."""
        request, environment = self.request, self.environment
        self.log.state = TrainingState(request.progress)
        installation = replace(environment.installation, template=request.template(environment.installation.template))

        async def known(submission: Submission) -> None:
            """Pass the job to `termination`, and set this try's pod as its owner."""
            termination.knows(submission.ref)
            session.report_submitted(submission, advice="start a new run to train with this one")
            if submission.adopted and self._owning_pod is not None:
                await take_over(environment.backend, submission.ref, self._owning_pod, self.log)
            await self._learn_secrets(submission.ref)

        async def preempted(submission: Submission, outcome: JobOutcome) -> None:
            """Note the attempt for a next try, because the next attempt deletes the job."""
            termination.forgets()
            await self._record_outcome(submission, outcome)

        is_wanted = self.job.checkpoints is not None or environment.retry is not None
        session = Session(
            backend=environment.backend,
            owner=self._owner,
            store=store,
            sink=self.log,
            on_finish_action=request.on_finish_action,
            api_error_timeout=environment.api_error_timeout,
            tell=self.log.notice,
            on_known=known,
            on_preempted=preempted,
            pauses=PAUSES,
            how_to_submit=SubmitOptions(exact_name=request.exact_name, installation=installation),
            how_to_follow=FollowOptions(
                deadline=deadline_after(began, request.timeout),
                limits=request.limits.with_default_preemptions(is_wanted=is_wanted),
                keep_running_pods=request.keep_running_pods,
                curves=True,
                mask=self.log.mask,
                state=self.log.state,
            ),
        )
        return session

    async def _learn_secrets(self, ref: JobRef) -> None:
        """Mask the values that the job's programs get from Secrets, before any of their lines is logged."""
        try:
            self.log.mask.learn(await self.environment.secrets_of(ref))
        except ClusterError as error:
            self.log.notice(f"{ref}: values of Secrets that its programs print are not masked here: {error}")

    async def _record_outcome(self, submission: Submission, outcome: JobOutcome) -> None:
        """Record the outcome for a next try, if one may follow: the job may be deleted by then."""
        if self.environment.pod is None:
            return
        try:
            if await self.environment.try_number() is None:
                return
            await self.environment.pod.note(owner_key(self._owner), AttemptResult.of(submission, outcome).to_text())
        except ClusterError as error:
            self.log.notice(f"{submission.ref}: how it ended could not be recorded for a next try: {error}")

    async def _leave(self, store: AttemptStore) -> None:
        """Leave the job running and log that: a next try adopts it; otherwise it is deleted with the step's pod.

        It is unknown whether there is a next try: the cluster's administrator decides when Argo repeats a failed step,
        whatever the pipeline's author has configured.
        """
        message = await leave_running(self.environment.backend, self._owner, store)
        if message:
            self.log.notice(message)

    @property
    def job(self) -> TrainingJob:
        """The requested job in its namespace."""
        return self.request.job.in_namespace(self.environment.namespace or kinds.DEFAULT_NAMESPACE)

    @property
    def _namespace(self) -> str:
        """The job's namespace."""
        return str(self.job.named_namespace)

    @property
    def _owning_pod(self) -> OwnPod | None:
        """The step's pod if it can own the job: with an owner in another namespace the job would be deleted at once."""
        pod = self.environment.pod
        return pod if pod and pod.namespace == self._namespace else None

    @property
    def _owner(self) -> Owner:
        """This step as the job's owner."""
        reference = self._owning_pod.as_owner if self._owning_pod else None
        return Owner(instance=self.environment.instance, ids=self.request.ids, labels={}, reference=reference)


EXIT_FAILED, EXIT_USAGE, EXIT_TRY_AGAIN, EXIT_STOPPED = 1, 2, 75, 143
"""The job failed; the request is wrong or cannot be met; another try may help (sysexits' EX_TEMPFAIL); SIGTERM, as in a
shell."""

_INPUT = "--executor_input"


def with_folder(request: Request, artifact: Any) -> Request:
    """Return the request with an input artifact as the job's code; unchanged if there is no artifact.

    Raises:
        InvalidSpec: the artifact is not a folder, or `code` is given as well.
    """
    if artifact is None:
        return request
    if request.job.code is not None:
        raise InvalidSpec.of("code_folder", artifact.uri, "leave it out: code is set")
    if not Path(artifact.path).is_dir():
        allowed = "allowed: an artifact that is a folder with files; unpack an archive in a step before"
        raise InvalidSpec.of("code_folder", artifact.uri, allowed)
    job = replace(request.job, code=CodeSource(folder=artifact.path))
    return replace(request, job=with_packed_folder(job, beside=Path()))


def run(
    given: Mapping[str, Any], environ: Mapping[str, str] = os.environ, words: Sequence[str] = sys.argv
) -> StepOutputs:
    """Run the whole step, write its artifacts and return its output parameters.

    Args:
        given: the component's inputs and output artifacts, by name.
        environ: environment of this process.
        words: command line of this process, with all inputs of the task, even those that the component does not have.

    Raises:
        SystemExit: the job did not succeed; standard output has the reason, with the diagnosis first.
    """
    log = StepLog(Masking(()))
    try:
        request, environment = Request.parse({**_inputs(words), **given}), read_environment(environ)
        request = with_folder(request, given.get("code_folder"))
        log = StepLog(Masking(environment.secrets))
        if given.get("code_folder") is not None:
            log.notice(
                "code: an artifact store keeps no executable bits and no empty folders: write `sh FILE`, not FILE"
            )
        if request.model_artifact is ModelArtifact.COPY and environment.local is None:
            must_enter_own_claim()
        training = Training(request=request, environment=environment, log=log)
        session, ref, outcome = asyncio.run(training.until_end())

        def write(result: dict[str, Any]) -> StepOutputs:
            passed_on = outgoing(result, log.notice, largest=EXACT_AS_FLOAT)
            how, local = request.model_artifact, environment.local
            logged = dict(outcome.progress.get("curve") or {})
            if logged:
                logged["metrics"] = {log.mask(tag): values for tag, values in logged["metrics"].items()}
            return artifacts.write(given, passed_on, model_artifact=how, local=local, logged=logged)

        return asyncio.run(session.finish(ref, outcome, deliver=write))
    except PTJobError as error:
        log.failure(str(error))
        sys.exit(_exit_code(error))
    except Terminated as terminated:
        log.notice(f"the step was terminated: {terminated}")
        sys.exit(EXIT_STOPPED)


def _inputs(words: Sequence[str]) -> Mapping[str, Any]:
    """Return the task's input parameters from the command line of kfp's runtime."""
    if _INPUT not in words:
        return {}
    values: Mapping[str, Any] = json.loads(words[words.index(_INPUT) + 1])["inputs"].get("parameterValues", {})
    return values


def _exit_code(error: PTJobError) -> int:
    if isinstance(error, InvalidSpec | UnsupportedByBackend):
        return EXIT_USAGE
    return EXIT_TRY_AGAIN if error.retryable else EXIT_FAILED
