"""Run one try of a task: submit or adopt the job, wait in the worker, report the outcome, or stop the job.

Airflow calls `on_kill` inside a signal handler, on top of any code: it may only wake the running loop. The same call
serves a user's kill, a drained worker and lost heartbeats. Nothing raises afterwards, so a task that simply continued
would end in success.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow import supervisor
from ptjob_provider.airflow.compat import (
    AirflowException,
    AirflowFailException,
    AirflowRuntimeError,
    AirflowTaskTimeout,
)
from ptjob_provider.airflow.config import load_installation
from ptjob_provider.airflow.links import JOB_NAME, JOB_NAMESPACE, JOB_UID, TENSORBOARD_URL, PyTorchJobTrainingLink
from ptjob_provider.airflow.masking import masked, with_texts_masked
from ptjob_provider.airflow.outcome import TaskStopped, push
from ptjob_provider.airflow.supervisor import TaskStateAttemptStore, tries_before_clear
from ptjob_provider.airflow.task_log import TaskLog, add_rest_of_log
from ptjob_provider.airflow.task_log.progress_store import PROGRESS, TaskProgress, progress_stores
from ptjob_provider.airflow.waiting import StopRequested
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Limits, Retrying
from ptjob_provider.core.errors import ClusterError, JobNotFound, JobTimedOut, PTJobError
from ptjob_provider.core.identity import Instance, JobRef, Owner
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.run.api_errors import TIMEOUT, ApiErrors
from ptjob_provider.core.run.cleanup import (
    delete_if_unfinished,
    is_left_to_next_try,
    known_job,
    leave_running,
)
from ptjob_provider.core.run.follow import FollowOptions
from ptjob_provider.core.run.orphans import WAITING_STATES, LeaveRunning, with_leave_running
from ptjob_provider.core.run.outcome import JobOutcome, deadline_after
from ptjob_provider.core.run.progress import JobProgress
from ptjob_provider.core.run.session import Session
from ptjob_provider.core.run.submit import Submission, SubmitOptions, conclude_attempt, deliver_attempt
from ptjob_provider.core.run.training_state import TrainingState
from ptjob_provider.core.spec.on_finish import OnFinishAction
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ptjob_provider.airflow.outcome import JobEvent
    from ptjob_provider.airflow.waiting import StoppableLoop
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.spec import Installation, TrainingJob
    from ptjob_provider.core.training_progress import LinePattern


class Fate(StrEnum):
    """The action on a job whose task no longer waits for it."""

    KEEP = "keep"
    DELETE = "delete"


def fate_in_worker(state: str | None, *, may_retry: bool) -> Fate:
    """Return the action of a worker that was told to stop.

    | state in Airflow | action |
    |---|---|
    | not running (a person marked, cleared or deleted the task) | delete |
    | running (a drained worker) | keep for the next try to adopt; delete if there is none |
    | waiting for the next try (lost heartbeats) | keep |
    | none (reset by a scheduler; or cleared, then the next try replaces the job) | keep |
    | no response | keep |

    A scheduler that takes over resets running tasks to none (`adopt_or_reset_orphaned_tasks`, Airflow 3.1 to 3.4), and
    Airflow then stops their workers. A person's clear sets a running task to "restarting".
    """
    if state == "running":
        return Fate.KEEP if may_retry else Fate.DELETE
    return Fate.KEEP if state in {None, "none", *WAITING_STATES} - {"restarting"} else Fate.DELETE


def fate_in_trigger(state: str | None) -> Fate:
    """Return the action of a trigger that Airflow has stopped.

    Airflow also stops the triggers of a triggerer that was frozen and replaced, although the task is still deferred
    (apache/airflow#73454), is about to be resumed, or waits for or runs its next try. That try adopts the job, or
    deletes it if a person has cleared the task. Without a response from Airflow, the job is kept. No state means a
    clear: schedulers reset only tasks that are queued, running or restarting.
    """
    return Fate.KEEP if state is None or state in WAITING_STATES else Fate.DELETE


@contextlib.contextmanager
def alarm_put_off(seconds: float) -> Iterator[None]:
    """Delay Airflow's `execution_timeout`, so that our own deadline can delete the job first.

    Airflow's alarm raises in whatever code runs at that moment; asyncio logs and discards an exception in a callback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    airflow_handler = signal.getsignal(signal.SIGALRM)

    def put_off(*_: object) -> None:
        signal.signal(signal.SIGALRM, airflow_handler)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    signal.signal(signal.SIGALRM, put_off)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, airflow_handler)


_SUBMIT_GRACE = 2.0
"""Maximum seconds for a create request in progress to complete after the task was told to stop."""

_TIMEOUT_GRACE = 90.0
"""Seconds after `execution_timeout` for our own deadline to delete the job and report why, before Airflow's raises:
longer than `follow` waits then for a silent API server, and for the end of the log."""

_STOP_TIMEOUT = 30.0
"""Maximum seconds to stop the job after Airflow's alarm."""

_WHY_KEPT = {
    None: "Airflow did not say in time what became of this task",
    "none": "Airflow has reset its task; the next try adopts it, or replaces it if the task was cleared",
}


class JobExecution:
    """Runs one try on the worker.

    Args:
        backend: where the job runs.
        context: Airflow's context of this try.
        instance: this installation.
        api_error_timeout: seconds for which requests about a job may be refused.
        log: the task's logger.
        waiting: the wait that `on_kill` wakes.
        on_finish_action: one of `OnFinishAction`.
        limits, keep_running_pods: see `follow`.
        leave_running: the part of the job that keeps running when no task waits for it. None: nothing.
        retrying: the retry rules of the task's author.
        pattern: the author's pattern of lines that say how far the training is; None: those that are built in.

    Raises:
        InvalidSpec: `on_finish_action` is unknown.
    """

    def __init__(
        self,
        backend: Backend,
        context: Any,
        *,
        instance: Instance,
        api_error_timeout: float = TIMEOUT,
        log: Any,
        waiting: StoppableLoop,
        on_finish_action: str = OnFinishAction.KEEP_JOB,
        limits: Limits | None = None,
        keep_running_pods: bool = False,
        leave_running: LeaveRunning | None = None,
        retrying: Retrying | None = None,
        pattern: LinePattern | None = None,
    ) -> None:
        self._leave_running = leave_running
        self._retrying = retrying or Retrying()
        self._ti = context["ti"]
        self._task = context["task"]
        self._instance = instance
        self._tries_before_clear = tries_before_clear(context)
        self._store = TaskStateAttemptStore(context)
        self._log = log
        self._waiting = waiting
        self._ref: JobRef | None = None
        self._submission: Submission | None = None
        self._sink = TaskLog(log)
        self._state = TrainingState(pattern)
        self._session = Session(
            backend=backend,
            owner=owner_of(instance, self._ti),
            store=self._store,
            sink=self._sink,
            on_finish_action=OnFinishAction.parse(on_finish_action),
            api_error_timeout=api_error_timeout,
            tell=partial(log.info, "%s"),
            warn=partial(log.warning, "%s"),
            on_known=self._known,
            how_to_follow=FollowOptions(
                deadline=self.deadline,
                limits=limits or Limits(),
                keep_running_pods=keep_running_pods,
                mask=masked,
                state=self._state,
            ),
        )

    @property
    def deadline(self) -> datetime | None:
        """The end of `execution_timeout`, counted from the try's start, which survives a deferral."""
        return deadline_after(self._ti.start_date, self._task.execution_timeout)

    def result_of_earlier_try(self) -> dict[str, Any] | None:
        """Return the result of this task's job if an earlier try deleted the job and could not report; else None."""
        result = self._store.load_result()
        if result is not None:
            self._log.info("the job has succeeded and was deleted in an earlier try; this is its result")
        return result

    def submit(self, job: TrainingJob, *, exact_name: bool) -> Submission:
        """Create the job or adopt the existing one, and push its identity as XComs before the task waits for it."""
        creating = self._create(job, load_installation(), exact_name=exact_name)
        with self.deciding_on_error():
            submission = self._waiting.run(creating, grace=lambda: 0.0 if self._ref else _SUBMIT_GRACE)
        if submission.tensorboard_url:
            self._ti.xcom_push(key=TENSORBOARD_URL, value=submission.tensorboard_url)
            self._log.info("%s: its TensorBoard is at %s", submission.ref, submission.tensorboard_url)
        return submission

    def take(self, submission: Submission) -> None:
        """Be responsible for the job, unless another installation has created it."""
        if self._instance.has(submission.instance):
            self._ref, self._submission = submission.ref, submission

    def leave(self, submission: Submission) -> None:
        """Log a warning about what a person must delete after a job that no task waits for."""
        if submission.tensorboard_url:
            self._log.warning("%s: its TensorBoard runs until the job is deleted", submission.ref)

    def tell_begun(self, submission: Submission) -> None:
        """Push the progress of a job that has just been submitted or adopted: how earlier attempts have ended."""
        self._state.known, self._state.earlier = JobProgress(submission=submission, mask=masked), submission.earlier
        push(self._ti, {PROGRESS: with_texts_masked(self._state.to_dict())}, self._log)

    def needs_waiting(self, submission: Submission) -> bool:
        """Return whether the job has not ended; called right before a deferral.

        A worker learns only at its next heartbeat that a person has marked its task; if the task has deferred by then,
        its job is orphaned. Deferring for a job that has ended would cost two seconds.

        Raises:
            TaskStopped: the task is no longer running in Airflow.
        """
        with self.deciding_on_error():
            state, is_finished = self._waiting.run(self._observe(submission.ref))
            if state not in {None, "running"}:
                raise StopRequested
        return not is_finished

    def wait(self, submission: Submission) -> JobOutcome:
        """Follow the job in this process, and write rank 0's lines to the task's log."""
        try:
            with self.deciding_on_error(), alarm_put_off(_TIMEOUT_GRACE):
                return self._waiting.run(self._follow(submission))
        finally:
            self._sink.flush()
            supervisor.settle()

    async def _follow(self, submission: Submission) -> JobOutcome:
        store = progress_stores.get()
        task = TaskProgress(self._ti, submission.ref.uid, sink=self._sink, state=self._state)
        store.add(task)
        try:
            return await self._session.follow(submission)
        finally:
            store.drop(task)

    def after(self, submission: Submission, outcome: JobOutcome) -> JobOutcome | None:
        """Return the outcome to report; None, after the pause, if this try makes the next attempt, see `Session.after`.

        Raises:
            TaskStopped: the task is no longer running in Airflow; no job of it runs.
        """
        if not (outcome.diagnosis and self._retrying.judge(outcome.diagnosis).retryable):
            return outcome
        if not self._instance.has(submission.instance):
            return outcome
        self._ref = self._submission = None  # the job has ended, or is found by the stored attempt
        with self.deciding_on_error(), alarm_put_off(_TIMEOUT_GRACE):
            final = self._waiting.run(self._session.after(submission, outcome))
            if final is None and (
                self._waiting.run(supervisor.state_from_worker(self._ti)) not in {None, "running"}
                or self._store.load() is None  # the next try runs already, see `_keep_or_delete`
            ):
                raise StopRequested
        return final

    def finish(self, submission: Submission, outcome: JobOutcome) -> dict[str, Any]:
        """Return the result of a job that succeeded, and delete or keep the job as `on_finish_action` says.

        Raises:
            JobFailed: the job failed; the next try starts a new attempt.
            OutputsNotVerified: the outputs could not be inspected; the job is kept, and the next try only verifies.
        """
        if outcome.diagnosis is not None:
            outcome = replace(outcome, diagnosis=self._retrying.judge(outcome.diagnosis))
        hands_off = not self._instance.has(submission.instance)
        if hands_off:
            self._log.warning(
                "%s is left as it is: it is a job of installation %s", submission.ref, submission.instance
            )
        session = replace(self._session, how_to_follow=FollowOptions(hands_off=hands_off))
        return asyncio.run(session.finish(submission.ref, outcome, deliver=self._save_result))

    def deliver(self) -> None:
        """Record, as the last action of this try, that it has delivered the job's result; a failure is only logged."""
        try:
            deliver_attempt(self._store, by_try=self._ti.try_number)
        except AirflowRuntimeError as error:
            self._log.warning("the hand-over of the job could not be stored: %s", error)

    def add_rest_of_log(self, event: JobEvent) -> None:
        """Add the lines after the last one that the trigger has confirmed."""
        self._waiting.run(add_rest_of_log(self._session.backend, event, task_instance=self._ti, logger=self._log))

    @contextmanager
    def deciding_on_error(self) -> Iterator[None]:
        """Decide about the job when the block ends with an error, so that no job runs on unnoticed.

        A task that was told to stop keeps or deletes the job, see `fate_in_worker`. After a timeout, an unfinished job
        is stopped. After another error, the job runs on: the next try adopts it, or it is marked.
        """
        try:
            yield
        except StopRequested:
            message = asyncio.run(self._keep_or_delete()) or "no job of it runs"
            raise TaskStopped(f"The task was told to stop. {message}") from None
        except AirflowTaskTimeout:
            self._log.warning("%s", asyncio.run(self._end_overdue()))
            raise
        except Exception as error:
            if not is_left_to_next_try(error, may_retry=may_retry(self._ti)):
                self._leave_unfollowed(error)
            raise

    async def _create(self, job: TrainingJob, installation: Installation, *, exact_name: bool) -> Submission:
        how = SubmitOptions(
            exact_name=exact_name,
            installation=installation,
            clear_number=self._ti.max_tries,  # only a clear changes it, and nearly every clear does
            tries_before_clear=self._tries_before_clear,
        )
        session = replace(self._session, how_to_submit=how)
        namespace = job.named_namespace or kinds.DEFAULT_NAMESPACE
        errors = ApiErrors(f"{namespace}, earlier tries", self._log.warning, timeout=session.api_error_timeout)
        own_kinds = kinds.creatable(job, preferred=installation.kind)
        await self._store.recall(session.backend, namespace, session.owner, errors, own_kinds=own_kinds)
        return await session.submit(with_leave_running(job, self._leave_running))

    async def _known(self, submission: Submission) -> None:
        self.take(submission)
        ref = submission.ref
        for key, value in ((JOB_NAME, ref.name), (JOB_NAMESPACE, ref.namespace), (JOB_UID, ref.uid)):
            self._ti.xcom_push(key=key, value=value)
        # Airflow pushes links only when this process ends: too late for a task that waits here.
        training = PyTorchJobTrainingLink()
        self._ti.xcom_push(key=training.xcom_key, value=training.get_link(self._task, ti_key=self._ti))
        self._session.report_submitted(submission, advice="clear the task to train with the new one")

    async def _observe(self, ref: JobRef) -> tuple[str | None, bool]:
        state = await supervisor.state_from_worker(self._ti)
        try:
            phase = await self._phase(ref)
        except PTJobError as error:
            self._log.warning("%s: whether it has ended is not known: %s", ref, error)
            return state, False
        return state, phase is None or phase.is_terminal

    async def _phase(self, ref: JobRef) -> JobPhase | None:
        """Return the job's phase; None if the job is gone."""
        try:
            job = await self._session.backend.get(ref.kind, ref.namespace, ref.name)
        except JobNotFound:
            return None
        return kinds.read_status(job).phase if JobRef.of(job) == ref else None

    def _save_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result as it can leave the process; store it if the job is about to be deleted."""
        result = outgoing(result, self._log.warning)
        if self._session.on_finish_action.deletes(succeeded=True):
            self._store.save_result(result)
        return result

    async def _keep_or_delete(self) -> str:
        """Keep or delete the job of a task that was told to stop, and return a sentence about it."""
        ref: JobRef | None = None
        try:
            ref = await self._known_job()
            if ref is None:
                return ""
            state = await supervisor.state_from_worker(self._ti)
            if state == "running" and self._store.load() is None:
                state = "none"  # the next try runs already: Airflow has no stored state for a try that was replaced
            if fate_in_worker(state, may_retry=may_retry(self._ti)) is Fate.KEEP:
                return f"{ref} is kept: {_WHY_KEPT.get(state, 'the next try adopts it')}"
            why = "this was the last try" if state == "running" else f"the task is {state}"
            deleted = await delete_if_unfinished(self._session.backend, ref, submission=self._submission)
            phase = None if deleted else await self._phase(ref)
        except (ClusterError, AirflowRuntimeError) as error:
            return _may_still_run(ref, error)
        if phase is not None and not phase.is_terminal:
            return f"{ref} is kept: a later try has it"
        return f"{ref} was deleted: {why}" if deleted else f"{ref} had already ended"

    def _leave_unfollowed(self, error: Exception) -> None:
        """Leave the job running, and add that to the error."""
        message = asyncio.run(leave_running(self._session.backend, self._session.owner, self._store, ref=self._ref))
        if message:
            self._log.warning("%s", message)
        if message and isinstance(error, PTJobError):
            error.args = (f"{error}. {message}",)

    async def _end_overdue(self) -> str:
        """Stop an unfinished job at `execution_timeout`, and return a sentence about the job.

        The attempt ends only with a job that was stopped or has failed: else the next try would stop what still runs,
        or train again after a success.
        """
        ref: JobRef | None = None
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                ref = await self._known_job()
                if ref is None:
                    return "execution_timeout has passed; this try had no job"
                deleted = await delete_if_unfinished(self._session.backend, ref, submission=self._submission)
                phase = JobPhase.FAILED if deleted else await self._phase(ref)
        except (ClusterError, TimeoutError) as error:
            return _may_still_run(ref, error)
        if phase is JobPhase.FAILED:
            conclude_attempt(self._store)
        if phase is JobPhase.SUCCEEDED:
            return f"{ref} has succeeded and is kept: a retry verifies its outputs, and does not train again"
        if phase is not None and not phase.is_terminal:
            return f"{ref} is kept: a later try follows it"
        return f"{ref} was deleted: execution_timeout has passed" if deleted else f"{ref} had already ended"

    async def _known_job(self) -> JobRef | None:
        """Return this task's job, including one that an earlier try created or was creating."""
        return self._ref or await known_job(self._session.backend, self._session.owner, self._store)


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Translate the core's errors to Airflow's: no retry where none helps, known secrets masked."""
    try:
        yield
    except PTJobError as error:
        retried = AirflowTaskTimeout if isinstance(error, JobTimedOut) else AirflowException
        raise (retried if error.retryable else AirflowFailException)(masked(str(error))) from None


def _may_still_run(ref: JobRef | None, error: Exception) -> str:
    why = str(error) or "no answer"
    what = f"{ref or 'Its job'} may still run: it could not be stopped ({why})"
    return f"{what}. Look at it: ptjob get; end it: ptjob delete"


def owner_of(instance: Instance, ti: Any) -> Owner:
    """Return a task instance as a job's owner, with KubernetesPodOperator's label names, and with `max_tries`."""
    mapped = {"map_index": str(ti.map_index)} if ti.map_index is not None and ti.map_index >= 0 else {}
    ids = {"dag_id": ti.dag_id, "task_id": ti.task_id, "run_id": ti.run_id, **mapped}
    labels = {"try_number": str(ti.try_number), "max_tries": str(ti.max_tries)}
    return Owner(instance=instance.name, aliases=instance.aliases, ids=ids, labels=labels)


def may_retry(ti: Any) -> bool:
    """Return whether Airflow tries again if this try fails, by its server's rule."""
    return bool(ti.max_tries) and ti.try_number <= ti.max_tries
