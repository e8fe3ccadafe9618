"""Tests of secrets in a program's last lines: every text that leaves the provider is masked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import PokeReturnValue
from airflow.sdk.log import mask_secret, redact

from airflow_adapter.stand_ins import (
    OWNED,
    ListLogger,
    StandInTaskInstance,
    context,
    event_of,
    job_object,
    log_line,
    operator,
    pod_object,
    submitted,
)
from ptjob_provider.airflow.masking import masked
from ptjob_provider.airflow.outcome import JobEvent, failure_reported, push_result
from ptjob_provider.airflow.sensors import PyTorchJobSensor
from ptjob_provider.airflow.task_log.sink import CONTINUES, MAX_RECORD, TaskLog
from ptjob_provider.airflow.task_session import airflow_errors
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.errors import ClusterUnavailable
from ptjob_provider.core.identity import OUTPUTS_ANNOTATION
from ptjob_provider.core.outputs.contract import OutputFacts, OutputReport
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.status import JobPhase, JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakes import ScriptedBackend

SECRET = "train-12345"  # noqa: S105 - not a real one
SENSOR = PyTorchJobSensor(task_id="see", job_name="digits", namespace="team", deferrable=False)


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    from airflow.sdk._shared.secrets_masker import reset_secrets_masker  # noqa: PLC0415 - not without Airflow

    mask_secret(SECRET)
    yield
    reset_secrets_masker()


def test_an_event_quotes_last_words_without_the_secret() -> None:
    """Names and enum values are not masked, even if they contain the secret: the event must stay readable."""
    why = Diagnosis.of(Cause.EXIT_CODE, f"it said {SECRET}", log_tail=(f"token={SECRET}", "the end"), replica=SECRET)
    status = JobStatus(phase=JobPhase.FAILED, message=f"refused {SECRET}")
    failed = [{"replica": SECRET, "message": f"exited with code 1: {SECRET}"}]
    result: dict[str, Any] = {"job": {"name": SECRET}, "diagnosis": why.to_dict(), "failed_replicas": failed}
    conclusion = JobOutcome(outcome=Outcome.FAILED, status=status, diagnosis=why, result=result)
    event = JobEvent(submission=Submission.of(job_object(SECRET)), outcome=conclusion, error=f"no {SECRET}")

    received = JobEvent.from_dict(json.loads(json.dumps(event.to_dict())))

    assert received.error == "no ***"
    assert received.outcome is not None
    assert received.outcome.status.message == "refused ***"
    assert received.outcome.diagnosis is not None
    assert received.outcome.diagnosis.summary == "it said ***"
    assert received.outcome.diagnosis.log_tail == ("token=***", "the end")
    assert received.outcome.result is not None
    assert received.outcome.result["diagnosis"]["log_tail"] == ["token=***", "the end"]
    assert (received.submission.ref.name, received.outcome.diagnosis.replica) == (SECRET, SECRET)
    assert received.outcome.result["job"] == {"name": SECRET}
    assert received.outcome.result["failed_replicas"] == [{"replica": SECRET, "message": "exited with code 1: ***"}]


def test_an_error_is_raised_without_the_secret() -> None:
    """Callbacks and emails use the exception's text as it is."""
    with pytest.raises(AirflowException, match=r"^\*\*\* does not answer$"), airflow_errors():
        raise ClusterUnavailable(f"{SECRET} does not answer")


def test_a_sensor_says_what_is_wrong_with_outputs_without_the_secret(backend: ScriptedBackend) -> None:
    """The user who declared the outputs chose their names."""
    model = {"uri": f"pvc://c/{SECRET}", "claim": "c", "path": SECRET, "container_path": "/data/m.pt"}
    job = job_object("digits", "Succeeded", annotations={**OWNED, OUTPUTS_ANNOTATION: json.dumps({"model": model})})
    backend.jobs, backend.worlds = {("team", "digits"): job}, [Observation(job=job)]
    backend.report = OutputReport(model=OutputFacts(exists=False), tfevents=None)

    with pytest.raises(AirflowFailException, match="pvc://c/\\*\\*\\*") as raised:
        SENSOR.poke(context())

    assert SECRET not in str(raised.value)


def test_a_sensor_tells_of_a_replica_that_failed_without_the_secret(backend: ScriptedBackend) -> None:
    """The sensor reads the last lines of another user's pods."""
    job = job_object("digits", "Succeeded")
    ended = {"exitCode": 1, "reason": "Error", "message": f"no token {SECRET}", "finishedAt": "2026-11-20T10:05:00Z"}
    backend.jobs = {("team", "digits"): job}
    backend.worlds = [Observation(job=job, pods=[pod_object("digits-worker-0", {"terminated": ended})])]

    seen = SENSOR.poke(context())

    assert isinstance(seen, PokeReturnValue)
    (failed,) = seen.xcom_value["failed_replicas"]
    assert failed["message"] == "exited with code 1: its last line is “no token ***”"
    assert SECRET not in json.dumps(seen.xcom_value)


def test_the_diagnosis_in_xcom_of_a_failed_job_is_without_the_secret(backend: ScriptedBackend) -> None:
    """A notifier may post it publicly."""
    ti = StandInTaskInstance()
    given = context(ti)
    why = Diagnosis.of(Cause.EXIT_CODE, f"it said {SECRET}", resolution=f"do not say {SECRET}")
    event = event_of(submitted(backend, given), Outcome.FAILED, diagnosis=why, result={})

    with pytest.raises(AirflowException):
        operator().execute_complete(given, event)

    assert "***" in ti.pushed["diagnosis"]["message"]
    assert SECRET not in json.dumps(ti.pushed)


async def test_a_secret_where_a_long_line_is_cut_into_records_is_masked() -> None:
    """Half a secret is not known as one."""
    logger = ListLogger()
    log = TaskLog(logger)

    log.line(log_line(1, "x" * (MAX_RECORD - 5) + SECRET + "y" * MAX_RECORD))
    log.flush()

    text = "".join(record.removesuffix(CONTINUES) for record in logger.text.split("\n"))
    assert text == "x" * (MAX_RECORD - 5) + "***" + "y" * MAX_RECORD


@pytest.mark.parametrize("error", [ClusterUnavailable(f"no {SECRET}"), RuntimeError(f"no {SECRET}")])
def test_the_diagnosis_in_xcom_of_any_other_error_is_without_the_secret(error: Exception) -> None:
    """Error texts of servers and libraries quote their input."""
    ti = StandInTaskInstance()

    with pytest.raises(type(error)), failure_reported(context(ti), ListLogger()):
        raise error

    assert ti.pushed["diagnosis"]["message"] == "no ***"


def test_a_key_that_a_program_has_made_is_without_the_secret() -> None:
    """The program chooses the tags of its scalars."""
    ti = StandInTaskInstance()

    push_result(ti, {"tfevents": {"uri": "pvc://c/logs", "scalars": {f"loss {SECRET}": 1.0}}}, ListLogger())

    assert ti.pushed["metric_loss____"] == 1.0


@pytest.mark.parametrize("where", ["env", "worker"])
def test_a_password_for_the_code_is_masked_from_then_on(where: str) -> None:
    """A common user name is not masked: half of a log would be asterisks."""
    env = {"GIT_SYNC_USERNAME": "annalena", "GIT_SYNC_PASSWORD": "tops3cret", "LR": "0.12345"}
    given = {"env": env} if where == "env" else {"worker": {"env": env}}

    operator(code="https://git.example/x.git", **given)._job()

    assert masked("annalena tops3cret 0.12345") == "annalena *** 0.12345"
    assert "tops3cret" not in str(redact({"env": env}))  # as it is shown among the rendered fields
