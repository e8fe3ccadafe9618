"""Tests of a task that is stopped or times out: what happens to its job, and that it never ends in success."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import TimeoutPosix

from airflow_adapter.stand_ins import ListLogger, StandInTaskInstance, context, end_job, log_line
from airflow_versions import since
from fakes import ScriptedBackend
from ptjob_provider.airflow.outcome import JobEvent, TaskStopped
from ptjob_provider.airflow.supervisor import TaskStateAttemptStore
from ptjob_provider.airflow.task_session import (
    JobExecution,
    airflow_errors,
    alarm_put_off,
    may_retry,
)
from ptjob_provider.airflow.waiting import StoppableLoop, StopRequested
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.errors import (
    ClusterUnavailable,
    InvalidSpec,
    JobNotFound,
    OutputsNotVerified,
    PermissionDenied,
    PTJobError,
    ReservationLost,
    UnsupportedByBackend,
)
from ptjob_provider.core.identity import UNFOLLOWED_ANNOTATION, Instance
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow_adapter.stand_ins import FakeComms
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.logs import LogLine
    from ptjob_provider.core.run.submit import Submission

pytestmark = pytest.mark.usefixtures("comms")

JOB = TrainingJob.parse(name="digits", namespace="team", image="digits:1", workers=2)


class Try:
    """One try of a task whose job runs until it is stopped."""

    def __init__(
        self,
        ti: StandInTaskInstance | None = None,
        *,
        execution_timeout: timedelta | None = None,
        backend: ScriptedBackend | None = None,
        given: dict[str, Any] | None = None,
    ) -> None:
        self.backend = backend or ScriptedBackend()
        self.backend.log_hangs = True
        self.given = given or context(ti, execution_timeout=execution_timeout)
        self.waiting, self.log = StoppableLoop(), ListLogger()
        self.execution = JobExecution(
            self.backend, self.given, instance=Instance("prod"), log=self.log, waiting=self.waiting
        )

    @classmethod
    def submitted(cls, ti: StandInTaskInstance | None = None) -> Try:
        """Return a try that has submitted its job; a next one may follow unless the task instance says otherwise."""
        trying = cls(ti or StandInTaskInstance(max_tries=2))
        trying.submit()
        return trying

    def submit(self) -> Submission:
        submission = self.execution.submit(JOB, exact_name=False)
        (job,) = self.backend.jobs.values()
        self.backend.worlds = [Observation(job=job)]
        return submission

    def wait(self) -> dict[str, Any]:
        submission = self.submit()
        with airflow_errors():
            conclusion = self.execution.wait(submission)
            return self.execution.finish(submission, conclusion)

    def is_told_to_stop(self, match: str) -> None:
        """Tell the task to stop while it does not wait; the sentence says what becomes of its job."""
        with pytest.raises(TaskStopped, match=match), self.execution.deciding_on_error():
            raise StopRequested

    def is_overdue(self) -> None:
        """Let Airflow's alarm go off."""
        with pytest.raises(AirflowTaskTimeout), self.execution.deciding_on_error():
            raise AirflowTaskTimeout

    def next(self) -> Try:
        """Return the same task's next try, which does not know the job yet."""
        return Try(given=self.given, backend=self.backend)

    @property
    def marks(self) -> bool:
        changes = [change["metadata"].get("annotations") or {} for change in self.backend.patches]
        return any(UNFOLLOWED_ANNOTATION in annotations for annotations in changes)

    @property
    def record(self) -> Any:
        return TaskStateAttemptStore(self.given).load()

    def wake_when_it_waits(self) -> None:
        while not self.backend.shown:  # there is no event for it
            time.sleep(0.01)
        self.waiting.wake()


@pytest.mark.parametrize(
    ("state", "try_number", "max_tries", "kept"),
    [
        ("running", 1, 3, True),
        ("running", 3, 3, True),
        ("running", 4, 3, False),
        ("running", 1, 0, False),
        ("failed", 1, 3, False),
        ("restarting", 1, 3, False),
        ("up_for_retry", 1, 3, True),
        ("none", 1, 3, True),
        ("none", 1, 0, True),
        pytest.param(None, 1, 0, True, marks=since(3, 2, "questions to Airflow that may be given up")),
    ],
)
def test_the_state_of_a_stopped_task_decides_whether_its_job_is_kept(
    monkeypatch: pytest.MonkeyPatch, comms: FakeComms, state: str | None, try_number: int, max_tries: int, *, kept: bool
) -> None:
    """A drained worker's job runs on for the next try; a user's action or the last try ends it; no answer keeps it.

    So does no state: a scheduler's failover resets a running task, also after its last permitted retry.
    """
    comms.state = state
    if state is None:
        monkeypatch.setattr("ptjob_provider.airflow.supervisor.WORKER_PATIENCE", 1.0)
    trying = Try(StandInTaskInstance(try_number=try_number, max_tries=max_tries))
    threading.Thread(target=trying.wake_when_it_waits, daemon=True).start()

    with pytest.raises(AirflowException, match="told to stop.*" + ("kept" if kept else "deleted")):
        trying.wait()

    assert bool(trying.backend.jobs) is kept


@pytest.mark.parametrize(
    ("try_number", "max_tries", "retried"),
    [(1, 0, False), (1, 1, True), (2, 1, False), (3, 3, True), (4, 3, False), (0, 0, False)],
)
def test_the_last_permitted_retry_is_the_try_after_max_tries(try_number: int, max_tries: int, *, retried: bool) -> None:
    """The same rule as Airflow's server: `max_tries != 0 and try_number <= max_tries`."""
    assert may_retry(StandInTaskInstance(try_number=try_number, max_tries=max_tries)) is retried


def test_an_api_server_that_is_away_keeps_the_job(comms: FakeComms) -> None:
    comms.refuses = True
    trying = Try.submitted(StandInTaskInstance())

    trying.is_told_to_stop("is kept")

    assert trying.backend.jobs


def test_a_last_try_that_another_one_has_replaced_keeps_the_job() -> None:
    """After a scheduler's failover the next try may run already; Airflow has no stored state for the replaced one."""
    trying = Try.submitted(StandInTaskInstance())
    trying.given["task_state_store"].values.clear()
    trying.given["ti"].pushed.clear()

    trying.is_told_to_stop("is kept: Airflow has reset its task")

    assert trying.backend.jobs


def test_a_job_whose_task_instance_was_deleted_is_deleted(comms: FakeComms) -> None:
    """A reset task instance has no state; one whose run was deleted is missing from the answer."""
    comms.knows = False
    trying = Try.submitted()

    trying.is_told_to_stop("was deleted: the task is gone")

    assert not trying.backend.jobs


@pytest.mark.parametrize(("verb", "is_known"), [("read", True), ("delete", True), ("get", False)])
def test_a_job_that_cannot_be_deleted_is_said_to_run_on(comms: FakeComms, verb: str, *, is_known: bool) -> None:
    comms.state = "failed"
    trying = Try.submitted()
    trying.backend.refusals[verb] = [ClusterUnavailable("no answer")]

    (trying if is_known else trying.next()).is_told_to_stop("told to stop.*may still run")

    assert trying.backend.jobs


def test_a_known_job_is_stopped_although_it_cannot_be_looked_up(comms: FakeComms) -> None:
    comms.state = "failed"
    trying = Try.submitted()
    trying.backend.refusals["get"] = [ClusterUnavailable("no answer")]

    trying.is_told_to_stop("was deleted")

    assert not trying.backend.jobs


def test_a_mapped_tasks_own_state_counts(comms: FakeComms) -> None:
    """The request contains the map index, and the answer's key does, too."""
    comms.state = "failed"

    Try.submitted(StandInTaskInstance(map_index=3, max_tries=2)).is_told_to_stop("the task is failed")

    assert comms.questions[0].map_index == 3


@pytest.mark.parametrize(("state", "kept"), [("running", True), ("failed", False)])
def test_a_job_that_is_created_as_its_task_is_stopped_is_not_lost(
    comms: FakeComms, monkeypatch: pytest.MonkeyPatch, state: str, *, kept: bool
) -> None:
    """A create in progress is awaited, so that its job is either kept or deleted and never lost."""
    monkeypatch.setattr("ptjob_provider.airflow.task_session._SUBMIT_GRACE", 60.0)
    comms.state = state

    class SlowStandIn(ScriptedBackend):
        async def submit(self, manifest: Manifest, **more: Any) -> JobRef:
            trying.waiting.wake()
            await asyncio.sleep(0.1)
            return await super().submit(manifest, **more)

    trying = Try(StandInTaskInstance(max_tries=2), backend=SlowStandIn())

    with pytest.raises(AirflowException, match="told to stop"):
        trying.wait()

    assert trying.backend.created == 1
    assert bool(trying.backend.jobs) is kept


def test_a_task_that_is_stopped_before_anything_is_created_leaves_nothing() -> None:
    trying = Try()
    trying.waiting.wake()

    with pytest.raises(AirflowException, match="no job of it runs"):
        trying.wait()

    assert trying.backend.created == 0


def test_a_second_try_that_is_stopped_at_its_beginning_deletes_the_job_of_the_first(comms: FakeComms) -> None:
    comms.state = "failed"
    trying = Try.submitted()

    trying.next().is_told_to_stop("was deleted: the task is failed")

    assert not trying.backend.jobs


def test_a_finished_job_is_kept_whatever_the_task_became(comms: FakeComms) -> None:
    comms.state = "failed"
    trying = Try.submitted()
    end_job(trying.backend)

    trying.is_told_to_stop("already ended")

    assert trying.backend.jobs


def test_execution_timeout_deletes_the_job_and_says_so() -> None:
    """The timeout counts from the try's start, and Airflow gets its own error type."""
    began = datetime.now(UTC) - timedelta(seconds=60)
    trying = Try(StandInTaskInstance(start_date=began, max_tries=2), execution_timeout=timedelta(seconds=30))
    trying.backend.log_hangs = False

    with pytest.raises(AirflowTaskTimeout, match="team/digits"):
        trying.wait()

    assert not trying.backend.jobs
    assert trying.record.ended


@pytest.mark.parametrize("is_known", [True, False])
def test_airflows_own_alarm_deletes_the_job_too(*, is_known: bool) -> None:
    trying = Try.submitted()

    (trying if is_known else trying.next()).is_overdue()

    assert not trying.backend.jobs
    assert trying.record.ended


def test_a_job_that_has_succeeded_by_airflows_alarm_is_verified_by_the_next_try() -> None:
    """Looking at the outputs may pass `execution_timeout`; the training must not be repeated for that."""
    first = Try.submitted()
    end_job(first.backend)

    first.is_overdue()

    assert "has succeeded and is kept" in first.log.text
    assert first.next().submit().adopted
    assert (first.backend.created, first.backend.deleted) == (1, [])


def test_a_task_is_stopped_while_it_adds_the_rest_of_its_log(comms: FakeComms) -> None:
    comms.state = "failed"
    trying = Try()
    submission = trying.submit()

    async def log_that_never_comes(*_: object, **__: object) -> AsyncIterator[LogLine]:
        trying.waiting.wake()
        await asyncio.Event().wait()
        yield log_line(1)

    trying.backend.logs = log_that_never_comes  # type: ignore[assignment]
    with pytest.raises(TaskStopped, match="was deleted"), trying.execution.deciding_on_error():
        trying.execution.add_rest_of_log(JobEvent(submission=submission, knows_place=True))


def test_the_alarm_of_a_try_that_was_frozen_keeps_the_job_of_a_later_try() -> None:
    frozen = Try.submitted()
    frozen.next().submit()

    frozen.is_overdue()

    assert "is kept: a later try follows it" in frozen.log.text
    assert (bool(frozen.backend.jobs), frozen.record.ended) == (True, False)


def test_a_try_that_was_frozen_and_is_told_to_stop_keeps_the_job_of_a_later_try(comms: FakeComms) -> None:
    """The later try was the last one, and has left the job running because it could not follow it."""
    comms.state = "failed"
    frozen = Try.submitted()
    frozen.next().submit()

    frozen.is_told_to_stop("is kept: a later try has it")

    assert frozen.backend.jobs


def test_a_job_that_has_failed_by_airflows_alarm_ends_its_attempt() -> None:
    trying = Try.submitted()
    end_job(trying.backend, "Failed")

    trying.is_overdue()

    assert trying.backend.jobs
    assert trying.record.ended


@pytest.mark.parametrize("verb", ["read", "delete"])
@pytest.mark.parametrize("error", [ClusterUnavailable("no answer"), PermissionDenied("forbidden")])
def test_an_api_server_that_does_not_stop_the_job_leaves_the_attempt_open(verb: str, error: PTJobError) -> None:
    """The job may run on; the next try adopts it, and starts no second one beside it."""
    trying = Try(StandInTaskInstance(max_tries=2))
    submission = trying.submit()
    trying.backend.refusals[verb] = [error]

    trying.is_overdue()

    assert not trying.record.ended
    assert f"{submission.ref} may still run" in trying.log.text
    assert trying.next().submit().adopted


def test_an_api_server_that_hangs_at_airflows_alarm_leaves_the_attempt_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptjob_provider.airflow.task_session._STOP_TIMEOUT", 0.1)
    trying = Try.submitted()
    trying.backend.server = "silent"

    trying.is_overdue()

    assert not trying.record.ended


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_job_that_is_gone_by_airflows_alarm_does_not_end_its_attempt(*, is_replaced: bool) -> None:
    """The next try finds out by itself; another job of that name is not this attempt's success."""
    trying = Try.submitted()
    end_job(trying.backend)
    (job,) = trying.backend.jobs.values()
    if is_replaced:
        job["metadata"]["uid"] = "another"
    else:
        trying.backend.jobs.clear()
    trying.backend.server = Observation(job=None)

    trying.is_overdue()

    assert not trying.record.ended
    assert "succeeded" not in trying.log.text
    assert not trying.backend.deleted


@pytest.mark.parametrize(
    ("error", "max_tries", "marked"),
    [
        (ClusterUnavailable("no answer"), 3, False),
        (ClusterUnavailable("no answer"), 0, True),
        (PermissionDenied("cannot watch pods"), 3, True),
        (InvalidSpec("the triggerer has another [ptjob] backend"), 3, True),
        (ReservationLost("given to run second: a restored ledger proves nothing about the training"), 3, True),
        (RuntimeError("a mistake of ours"), 3, False),
        (RuntimeError("a mistake of ours"), 0, True),
    ],
)
def test_a_job_that_cannot_be_followed_runs_on(error: Exception, max_tries: int, *, marked: bool) -> None:
    """If no further try follows, the job is marked for the orphan search and reported in the error and the log."""
    trying = Try.submitted(StandInTaskInstance(max_tries=max_tries))

    with pytest.raises(type(error)) as raised, trying.execution.deciding_on_error():
        raise error

    assert trying.backend.jobs
    assert trying.marks == marked
    assert ("was left running" in trying.log.text) is marked
    assert ("was left running" in str(raised.value)) is (marked and isinstance(error, PTJobError))


def test_a_job_that_has_ended_is_not_reported_as_left_running() -> None:
    trying = Try.submitted(StandInTaskInstance())
    end_job(trying.backend)

    with pytest.raises(ClusterUnavailable), trying.execution.deciding_on_error():
        raise ClusterUnavailable("no answer")

    assert "left running" not in trying.log.text


@pytest.mark.parametrize("is_known", [True, False])
def test_an_error_says_that_a_job_could_not_be_marked(*, is_known: bool) -> None:
    """The orphan search will not spare the job, so a user has to know."""
    trying = Try()
    submission = trying.submit()
    trying.backend.patch_error = PermissionDenied("cannot patch pytorchjobs")
    trying.backend.get_error = PermissionDenied("cannot get pytorchjobs")

    with (
        pytest.raises(ClusterUnavailable, match=rf"{submission.ref} may still run, and could not be marked .*cannot"),
        (trying if is_known else trying.next()).execution.deciding_on_error(),
    ):
        raise ClusterUnavailable("no answer")

    assert trying.backend.jobs


def test_a_job_that_was_never_submitted_is_not_said_to_run() -> None:
    """A kubeconfig that is not there: no request was sent, though the attempt was recorded before."""
    trying = Try()
    trying.backend.submits = [InvalidSpec("/opt/config: it is not there")]
    trying.backend.refusals["get"] = [InvalidSpec("/opt/config: it is not there")] * 9

    with pytest.raises(InvalidSpec) as raised:
        trying.submit()

    assert "may still run" not in f"{raised.value}{trying.log.text}"


def test_a_job_that_may_not_be_read_before_the_deferral_is_deferred() -> None:
    """The trigger waits until the job may be read, without a worker slot."""
    trying = Try(StandInTaskInstance(max_tries=3))
    submission = trying.submit()
    trying.backend.refusals["get"] = [PermissionDenied("cannot get pytorchjobs")]

    assert trying.execution.needs_waiting(submission)


def test_a_next_try_waits_until_its_job_may_be_read(comms: FakeComms, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary refusal neither fails the task nor starts a second job."""
    monkeypatch.setattr("ptjob_provider.core.run.api_errors._PAUSE", (0.01, 0.01))
    first = Try(StandInTaskInstance(max_tries=3))
    first.submit()
    second = first.next()
    second.backend.refusals["get"] = [PermissionDenied("cannot get pytorchjobs")] * 5

    assert second.submit().adopted
    assert second.backend.created == 1


def test_the_log_says_that_a_job_was_adopted() -> None:
    trying = Try.submitted()

    trying.execution.submit(TrainingJob.parse(name="digits", namespace="team", image="digits:2"), exact_name=False)

    assert "was adopted: PyTorchJob, uid uid-1, attempt 1" in trying.log.text
    assert "another specification" in trying.log.text
    assert trying.backend.created == 1


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (InvalidSpec("workers: -1"), False),
        (UnsupportedByBackend("hostNetwork"), False),
        (JobNotFound("gone"), False),
        (ClusterUnavailable("no answer"), True),
        (OutputsNotVerified("no probe"), True),
    ],
)
def test_errors_are_retried_only_where_that_can_help(error: PTJobError, *, retried: bool) -> None:
    """The core decides which; the text is the user's."""
    with pytest.raises(AirflowException, match=str(error)) as raised, airflow_errors():
        raise error

    assert isinstance(raised.value, AirflowFailException) is not retried


def test_a_signal_handler_can_end_the_wait() -> None:
    """Airflow calls `on_kill` in a signal handler, on top of any code."""
    waiting = StoppableLoop()
    before = signal.signal(signal.SIGUSR1, lambda *_: waiting.wake())

    async def waits_for_ever() -> None:
        threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        await asyncio.Event().wait()

    with pytest.raises(StopRequested):
        waiting.run(waits_for_ever())

    signal.signal(signal.SIGUSR1, before)


def test_a_coroutine_that_does_not_end_within_the_grace_is_cancelled() -> None:
    waiting, seen = StoppableLoop(), []

    async def stubborn() -> None:
        try:
            waiting.wake()
            await asyncio.sleep(60)
        finally:
            seen.append("ended")

    with pytest.raises(StopRequested):
        waiting.run(stubborn(), grace=lambda: 0.1)

    assert seen == ["ended"]


def test_airflows_alarm_is_put_off_once() -> None:
    """Our deadline acts first; if it does not, Airflow's alarm raises."""
    began = time.monotonic()

    with pytest.raises(AirflowTaskTimeout), TimeoutPosix(1.0), alarm_put_off(0.5):
        time.sleep(30)

    assert time.monotonic() - began > 1.45


def test_airflows_alarm_is_as_before_afterwards() -> None:
    """The time limit also holds for later steps of the task."""

    def two_steps() -> None:
        with alarm_put_off(30):
            pass
        time.sleep(30)

    with pytest.raises(AirflowTaskTimeout), TimeoutPosix(1.0):
        two_steps()
