"""Tests of what a try reports besides its result or error: a warning, and XComs for failure handling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout

from airflow_adapter.stand_ins import (
    ListLogger,
    StandInTaskInstance,
    context,
    event_of,
    job_object,
    operator,
    pod_object,
    submitted,
)
from ptjob_provider.airflow import outcome
from ptjob_provider.airflow.compat import HAS_STATE_STORE, TaskDeferralError
from ptjob_provider.airflow.outcome import (
    MOST_METRICS,
    TaskStopped,
    failure_reported,
    log_success,
    push_result,
)
from ptjob_provider.airflow.sensors import PyTorchJobSensor
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec, OutputsNotVerified, PTJobError, ReservationLost
from ptjob_provider.core.identity import UNFOLLOWED_ANNOTATION, JobRef
from ptjob_provider.core.outputs.contract import OutputFacts, OutputReport
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import Submission

if TYPE_CHECKING:
    from fakes import ScriptedBackend

SENSOR = PyTorchJobSensor(task_id="see", job_name="digits", namespace="team", deferrable=False)
REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="u")
FAILED = {"replica": "digits-worker-0", "rank": 1, "message": "exited with code 1"}
WHY = Diagnosis.of(Cause.OUT_OF_MEMORY, "digits-worker-0 (rank 1) ran out of memory", replica="digits-worker-0")
TOLD = {
    "cause": "out_of_memory",
    "replica": "digits-worker-0",
    "advice": WHY.resolution,
    "retryable": False,
    "attempt": 1,
    "message": "digits-worker-0 (rank 1) ran out of memory",
}
SECONDS = {"queue_seconds": 1.5, "run_seconds": 60.0, "restarts": 1, "gpu_seconds": 120.0, "gpu_seconds_lost": 9.0}
PEAKS = {"replicas": {"digits-worker-0": {"peak_memory": 10}}, "left_out": 0}
OUT_OF_MEMORY = {
    "exitCode": 137,
    "reason": "OOMKilled",
    "startedAt": "2026-11-20T10:01:00Z",
    "finishedAt": "2026-11-20T10:05:00Z",
}


def ended(backend: ScriptedBackend, given: dict[str, Any], condition: str, **arguments: Any) -> Submission:
    """Return an ended job of this task; a failed job's worker ran out of memory."""
    submission = submitted(backend, given, workers=2, **arguments)
    ((key, job),) = backend.jobs.items()
    backend.jobs[key] = job | {"status": job_object(condition=condition)["status"]}
    name = next(name for name, rank in submission.ranks.items() if rank == 1)
    pods = [pod_object(name, {"terminated": OUT_OF_MEMORY})] if condition == "Failed" else []
    backend.worlds = [Observation(job=backend.jobs[key], pods=pods)]
    return submission


# --- a failure


def test_a_task_whose_job_failed_while_it_waited_tells_why_for_programs(backend: ScriptedBackend) -> None:
    given = context()
    submission = ended(backend, given, "Failed")
    name = next(name for name, rank in submission.ranks.items() if rank == 1)

    with pytest.raises(AirflowException):
        operator(workers=2).execute(given)

    diagnosis = given["ti"].pushed["diagnosis"]
    assert diagnosis == TOLD | {"replica": name, "message": diagnosis["message"]}
    assert diagnosis["message"].startswith(f"{name} (rank 1) ran out of memory (OOMKilled")
    assert json.loads(json.dumps(diagnosis)) == diagnosis
    assert (given["ti"].pushed["usage"]["run_seconds"], given["ti"].pushed["usage"]["replicas"]) == (240.0, {})


def test_a_task_that_is_resumed_after_its_job_failed_tells_why_for_programs(backend: ScriptedBackend) -> None:
    given = context()
    submission = submitted(backend, given)
    event = event_of(submission, Outcome.FAILED, diagnosis=WHY, result={**SECONDS, "usage": PEAKS})

    with pytest.raises(AirflowException):
        operator().execute_complete(given, event)

    assert given["ti"].pushed["diagnosis"] == TOLD
    assert given["ti"].pushed["usage"] == {**SECONDS, **PEAKS}


@pytest.mark.usefixtures("comms")
@pytest.mark.parametrize(("max_tries", "is_marked"), [(0, True), (3, False)])
def test_after_a_trigger_that_airflow_could_not_run_the_job_runs_on(
    backend: ScriptedBackend, max_tries: int, *, is_marked: bool
) -> None:
    """Airflow does not call `execute_complete` then; after the last try, the job is marked as unfollowed."""
    ti = StandInTaskInstance(max_tries=max_tries)
    given = context(ti)
    submitted(backend, given)

    with pytest.raises(TaskDeferralError):
        operator().resume_execution("__fail__", {"error": "Trigger failure"}, given)

    assert (ti.pushed["diagnosis"]["cause"], ti.pushed["diagnosis"]["message"]) == ("trigger_failed", "Trigger failure")
    assert backend.jobs
    assert (UNFOLLOWED_ANNOTATION in str(backend.patches)) is is_marked


@pytest.mark.parametrize(
    ("error", "cause", "retryable", "message"),
    [
        (AirflowTaskTimeout(), "timed_out", True, "AirflowTaskTimeout"),
        (InvalidSpec("model: /nowhere"), "invalid_spec", False, "model: /nowhere"),
        (ClusterUnavailable("no answer"), "cluster_unavailable", True, "no answer"),
        (ReservationLost("another run has them"), "claim_lost", False, "another run has them"),
        (OutputsNotVerified("no answer"), "outputs_not_verified", True, "no answer"),
        (PTJobError("no event"), "error", False, "no event"),
        (RuntimeError("a mistake"), "unexpected", True, "a mistake"),
    ],
)
def test_every_error_has_a_cause_for_programs(
    error: BaseException, cause: str, message: str, *, retryable: bool
) -> None:
    """Also Airflow's own timeout and unexpected errors."""
    ti = StandInTaskInstance()

    with pytest.raises(type(error)), failure_reported(context(ti), ListLogger()):
        raise error

    diagnosis = ti.pushed["diagnosis"]
    assert (diagnosis["cause"], diagnosis["retryable"], diagnosis["message"]) == (cause, retryable, message)
    assert diagnosis["attempt"] is None


class StandInThatTakesNothing(StandInTaskInstance):
    """A task instance whose XCom push fails with an error of Airflow's API, or of a custom XCom backend."""

    error: Exception = ConnectionError("it is away")

    def xcom_push(self, key: str, value: Any) -> None:
        """Raise the error."""
        raise self.error


@pytest.mark.parametrize("error", [ConnectionError("it is away"), RuntimeError("it is away")], ids=repr)
def test_xcoms_that_airflow_does_not_take_change_nothing_about_a_tasks_end(error: Exception) -> None:
    """Errors stay errors and successes stay successes; the log has the failure."""
    ti, log = StandInThatTakesNothing(), ListLogger()
    ti.error = error

    with pytest.raises(ClusterUnavailable), failure_reported(context(ti), log):
        raise ClusterUnavailable("no answer")
    push_result(ti, {}, log)

    assert log.warnings == ["the result could not be pushed as XComs: it is away"] * 2


# --- a success


def test_a_task_that_waited_pushes_addresses_and_scalars_under_keys_of_their_own(backend: ScriptedBackend) -> None:
    """A template can read one value by one key."""
    given = context()
    outputs = {"model": "pvc://c/m.pt", "tfevents": "pvc://c/logs"}
    ended(backend, given, "Succeeded", **outputs)
    facts = OutputFacts(exists=True, bytes=9, modified_at=4e9, files=1, scalars={"eval/loss": 0.5, "accuracy": 0.98})
    backend.report = OutputReport(model=facts, tfevents=facts)

    operator(workers=2, **outputs).execute(given)

    found = {key: value for key, value in given["ti"].pushed.items() if not key.startswith(("job_", "_link_"))}
    assert found.pop("usage")["queue_seconds"] == 299.0
    assert found.pop("progress")["phase"] == "Succeeded"
    if not HAS_STATE_STORE:
        assert found.pop("ptjob_attempt")["attempt"] == 1
    assert found == {
        "model_uri": "pvc://c/m.pt",
        "tfevents_uri": "pvc://c/logs",
        "metric_accuracy": 0.98,
        "metric_eval_loss": 0.5,
    }


def test_a_training_with_many_scalars_pushes_some_and_says_so() -> None:
    """Each scalar is a row in Airflow's database; of two tags with the same key, the first one's value is pushed."""
    ti, log = StandInTaskInstance(), ListLogger()
    scalars = {"a b": 1.0, "a/b": 2.0, **{f"layer/{index:03}": float(index) for index in range(MOST_METRICS)}}

    push_result(ti, {"tfevents": {"uri": "pvc://c/logs", "scalars": scalars}}, log)

    metrics = {key: value for key, value in ti.pushed.items() if key.startswith("metric_")}
    assert "model_uri" not in ti.pushed
    assert (len(metrics), metrics["metric_a_b"], metrics["metric_layer_000"]) == (MOST_METRICS, 1.0, 0.0)
    assert log.records == [f"{MOST_METRICS} of {MOST_METRICS + 1} scalars are XComs of their own; return_value has all"]


@pytest.mark.parametrize("failed", [[], [FAILED]])
def test_the_log_warns_of_a_success_with_a_replica_that_failed(failed: list[dict[str, object]]) -> None:
    log = ListLogger()

    log_success(log, REF, {"failed_replicas": failed})

    said = "team/digits succeeded, but digits-worker-0 (rank 1) exited with code 1"
    assert log.warnings == ([said] if failed else [])
    assert log.records == [said if failed else "team/digits succeeded"]


# --- a sensor


def test_a_sensor_pushes_addresses_and_scalars_of_the_job_that_it_waits_for(backend: ScriptedBackend) -> None:
    lost, done = StandInTaskInstance(), StandInTaskInstance()
    job = job_object("digits", "Failed")
    backend.jobs, backend.worlds = {("team", "digits"): job}, [Observation(job=job)]
    with pytest.raises(AirflowException):
        SENSOR.poke(context(lost))
    submission = Submission.of(job)
    job = job_object("digits", "Succeeded")
    backend.jobs, backend.worlds = {("team", "digits"): job}, [Observation(job=job)]

    SENSOR.execute_complete(context(done), event_of(submission, Outcome.SUCCEEDED, result=SECONDS))

    assert (lost.pushed["diagnosis"]["cause"], lost.pushed["diagnosis"]["retryable"]) == ("unknown", False)
    assert lost.pushed["usage"]["queue_seconds"] == done.pushed["usage"]["queue_seconds"] == 300.0


# --- documentation


def test_every_cause_is_documented() -> None:
    """In docs/reference/airflow.md, for users who route failures by cause."""
    errors = {PTJobError, *all_below(PTJobError), TaskStopped}
    words = {*Cause, *(error.cause for error in errors), *(word for _, word in outcome._CAUSES), "unexpected"}

    page = (Path(__file__).parents[2] / "docs" / "reference" / "airflow.md").read_text()

    assert {word for word in words if f"`{word}`" not in page} == set()


def all_below(kind: type[PTJobError]) -> set[type[PTJobError]]:
    """Return all direct and indirect subclasses."""
    return {each for child in kind.__subclasses__() for each in {child, *all_below(child)}}
