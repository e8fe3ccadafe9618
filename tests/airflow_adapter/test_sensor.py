"""Tests of the sensor of other users' jobs: it changes no job, and a failed job is never a success."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)
from airflow.sdk import PokeReturnValue

from airflow_adapter.stand_ins import OWNED, StandInTaskInstance, context, event_of, job_object
from airflow_versions import since
from ptjob_provider.airflow.sensors import PyTorchJobSensor
from ptjob_provider.airflow.triggers import PyTorchJobTrigger
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import Diagnosis
from ptjob_provider.core.errors import OutputsNotVerified, PermissionDenied
from ptjob_provider.core.identity import OUTPUTS_ANNOTATION, REPORT_ANNOTATION
from ptjob_provider.core.outputs.contract import OutputFacts, OutputReport, report_text
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import Submission

if TYPE_CHECKING:
    from fakes import ScriptedBackend
    from ptjob_provider.core.identity import Manifest

KEY = ("team", "digits")
MODEL = {"uri": "pvc://c/m.pt", "claim": "c", "path": "m.pt", "container_path": "/data/m.pt"}
DECLARED = {OUTPUTS_ANNOTATION: json.dumps({"model": MODEL})}
OURS = {**DECLARED, **OWNED}
SUBMISSION = Submission.of(job_object())
SUCCEEDED = event_of(SUBMISSION, Outcome.SUCCEEDED, result={"phase": "Succeeded"})
FOUND = OutputReport(model=OutputFacts(exists=True, bytes=10, sha256="ab", modified_at=2e9))


def sensor(**arguments: Any) -> PyTorchJobSensor:
    fields = {"task_id": "see", "job_name": "digits", "namespace": "team", "deferrable": False, **arguments}
    return PyTorchJobSensor(**fields)


def show(backend: ScriptedBackend, job: Manifest | None) -> None:
    """Set the job that the back-end returns."""
    backend.jobs = {KEY: job} if job else {}
    backend.worlds = [Observation(job=job)]


@pytest.mark.parametrize(
    ("field", "value"), [("job_name", "None"), ("job_name", None), ("job_name", ""), ("namespace", "None")]
)
def test_a_name_that_a_template_has_not_found_is_refused(backend: ScriptedBackend, field: str, value: Any) -> None:
    """No job can have it, and the sensor would wait for its timeout, a week."""
    given = sensor(job_name="{{ ti.xcom_pull('train', key='job_name') }}")
    given.job_name = "digits"
    setattr(given, field, value)  # as Airflow renders it

    with pytest.raises(AirflowFailException, match=rf"{field}: {value!r} is not allowed"):
        given.poke(context())


def test_the_installations_kind_is_looked_for_first(backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older job of the same name and another kind is not used."""
    monkeypatch.setenv("AIRFLOW__PTJOB__KIND", "TrainJob")

    assert sensor().poke(context()) is False
    assert backend.kinds_read == ["TrainJob", "PyTorchJob", "PyTorchTrainingJob"]


@since(3, 3, "a state store of the task")
def test_a_job_that_runs_is_waited_for_and_its_reference_is_pushed(backend: ScriptedBackend) -> None:
    ti = StandInTaskInstance()
    show(backend, job_object("digits"))

    assert sensor().poke(context(ti)) is False
    assert ti.pushed == {"job_name": "digits", "job_namespace": "team", "job_uid": "u-1"}


@pytest.mark.parametrize(
    ("noted", "model"),
    [({REPORT_ANNOTATION: report_text(FOUND)}, {**MODEL, "bytes": 10, "sha256": "ab", "in_doubt": False}), ({}, None)],
)
def test_another_installations_outputs_are_those_that_its_task_has_noted(
    backend: ScriptedBackend, noted: dict[str, str], model: dict[str, Any] | None
) -> None:
    """On a cluster, probing the outputs would start a pod for a job that is not ours."""
    show(backend, job_object("digits", "Succeeded", annotations={**DECLARED, **noted}))
    backend.report = AssertionError("nobody may look")

    found = sensor().poke(context())

    assert isinstance(found, PokeReturnValue)
    assert (found.xcom_value["phase"], found.xcom_value["model"]) == ("Succeeded", model)


@pytest.mark.usefixtures("local")
def test_on_this_machine_anybodys_outputs_are_looked_at(backend: ScriptedBackend) -> None:
    """They are local files; no pod is needed."""
    show(backend, job_object("digits", "Succeeded", annotations=DECLARED))
    backend.report = FOUND

    found = sensor().poke(context())

    assert isinstance(found, PokeReturnValue)
    assert found.xcom_value["model"]["bytes"] == 10


@pytest.mark.parametrize("is_resumed", [False, True])
def test_outputs_that_could_not_be_inspected_fail_the_try_and_a_retry_inspects_them(
    backend: ScriptedBackend, *, is_resumed: bool
) -> None:
    """As after an operator: a model that nobody has seen is no result."""
    given = context(StandInTaskInstance(max_tries=2))
    show(backend, job_object("digits", "Succeeded", annotations=OURS))
    backend.report = OutputsNotVerified("exceeded quota")

    with pytest.raises(AirflowException, match=r"succeeded, but .*exceeded quota") as error:
        sensor().execute_complete(given, SUCCEEDED) if is_resumed else sensor().poke(given)

    assert not isinstance(error.value, AirflowFailException)
    assert given["ti"].pushed["diagnosis"]["cause"] == "outputs_not_verified"

    given["ti"].try_number, backend.report = 2, FOUND
    found: Any = sensor().poke(given)
    assert found.xcom_value["model"] == {**MODEL, "bytes": 10, "sha256": "ab", "in_doubt": False}


@pytest.mark.parametrize(
    ("instead", "message"),
    [
        (None, r"uid u-1, was deleted.*unknown"),
        (job_object("digits", "Succeeded", uid="u-2"), "another job, uid u-2"),
    ],
)
def test_a_job_that_is_gone_or_was_replaced_is_a_failure_even_if_the_new_one_succeeded(
    backend: ScriptedBackend, instead: Manifest | None, message: str
) -> None:
    """The uid is kept in the task's state, so pokes in other processes compare it as well."""
    given = context()
    show(backend, job_object("digits"))
    sensor().poke(given)
    show(backend, instead)

    with pytest.raises(AirflowFailException, match=message):
        sensor().poke(given)

    assert given["ti"].pushed["diagnosis"]["cause"] == "deleted"


def test_after_a_clear_the_job_that_is_there_counts(backend: ScriptedBackend) -> None:
    """A clear raises `max_tries` and discards what was observed before."""
    given = context()
    show(backend, job_object("digits"))
    sensor().poke(given)
    show(backend, job_object("digits", "Succeeded", uid="u-2"))
    given["ti"].max_tries += 1

    found = sensor().poke(given)

    assert found


@pytest.mark.parametrize("condition", ["Succeeded", "Failed", None])
def test_the_job_is_never_touched(backend: ScriptedBackend, condition: str | None) -> None:
    show(backend, job_object("digits", condition))

    with contextlib.suppress(AirflowFailException):
        sensor().poke(context())

    assert (backend.patches, backend.deleted) == ([], [])


@pytest.mark.parametrize("refused", [1, 9], ids=["of its kind alone", "of every kind"])
@pytest.mark.parametrize("condition", [None, "Succeeded"])
def test_a_job_that_was_seen_is_asked_for_until_a_refusal_has_passed(
    backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, condition: str | None, refused: int
) -> None:
    """A refusal means neither "not yet" nor "deleted", even if other kinds answer that they have no such job."""
    monkeypatch.setattr("ptjob_provider.core.run.api_errors._PAUSE", (0.01, 0.01))
    given = context()
    show(backend, job_object("digits"))
    sensor().poke(given)
    show(backend, job_object("digits", condition))
    backend.refusals["get"] = [PermissionDenied("cannot get pytorchjobs", code=403)] * refused
    found: bool | None = None
    with contextlib.suppress(AirflowFailException):
        found = bool(sensor().poke(given))

    assert found is (condition is not None)


def test_a_kind_that_may_not_be_read_is_reported_while_a_job_is_waited_for(
    backend: ScriptedBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    """The base Role grants PyTorchJobs alone; the job may be of another kind."""
    backend.refusals["get"] = [PermissionDenied("cannot get pytorchjobs", code=403)]

    assert sensor().poke(context()) is False
    assert "not looked at: cannot get pytorchjobs" in capsys.readouterr().out


def test_a_job_that_may_not_be_looked_for_is_an_error_after_the_time_for_refusals(
    backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which right may be missing; a retry may help."""
    monkeypatch.setenv("AIRFLOW__PTJOB__API_ERROR_TIMEOUT", "0")
    backend.get_error = PermissionDenied("cannot get pytorchjobs", code=403)

    with pytest.raises(AirflowException, match=r"cannot get.*Check the credential") as error:
        sensor().poke(context())

    assert not isinstance(error.value, AirflowFailException)


def test_a_failed_job_skips_the_task_with_soft_fail(backend: ScriptedBackend) -> None:
    """The meaning of `soft_fail` is Airflow's."""
    show(backend, job_object("digits", "Failed"))

    with pytest.raises(AirflowSkipException):
        sensor(soft_fail=True).execute(context())


def test_a_deferrable_sensor_waits_in_the_triggerer_once_the_job_exists(backend: ScriptedBackend) -> None:
    """The trigger's `hands_off` keeps it from deleting the job."""
    show(backend, job_object("digits"))

    with pytest.raises(TaskDeferred) as deferred:
        sensor(deferrable=True).execute(context())

    trigger = deferred.value.trigger
    assert isinstance(trigger, PyTorchJobTrigger)
    assert trigger.hands_off
    assert trigger.submission["ref"]["uid"] == "u-1"


@pytest.mark.parametrize(
    ("began", "arguments", "left"),
    [
        ("start_date", {}, 200),
        ("first_reschedule", {"mode": "reschedule"}, 200),
        ("start_date", {"execution_timeout": timedelta(seconds=120)}, 20),
        ("start_date", {"timeout": timedelta.max, "execution_timeout": timedelta(seconds=120)}, 20),
        ("start_date", {"execution_timeout": timedelta.max}, 200),
        ("start_date", {"timeout": timedelta.max}, None),
    ],
)
def test_the_trigger_has_the_time_that_is_left(
    backend: ScriptedBackend, began: str, arguments: dict[str, Any], left: int | None
) -> None:
    """`timeout` counts from the first poke, in whichever process; the shorter of two limits applies."""
    now = datetime.now(UTC)
    ti = StandInTaskInstance(**{began: now - timedelta(seconds=100)})  # type: ignore[arg-type]
    show(backend, job_object("digits"))

    with pytest.raises(TaskDeferred) as deferred:
        sensor(**{"deferrable": True, "timeout": 300, **arguments}).poke(context(ti))

    timeout = deferred.value.timeout
    assert (timeout is None) == (left is None)
    assert timeout is None or now <= now + timedelta(seconds=left or 0) - timeout <= datetime.now(UTC)


def test_a_deferrable_sensor_does_not_defer_for_a_job_that_has_ended(backend: ScriptedBackend) -> None:
    show(backend, job_object("digits", "Succeeded"))

    assert sensor(deferrable=True).execute(context())["phase"] == "Succeeded"


@pytest.mark.parametrize("instead", [None, job_object("digits", uid="u-2")])
def test_a_success_that_was_seen_stays_one_if_the_job_is_gone_a_moment_later(
    backend: ScriptedBackend, instead: Manifest | None
) -> None:
    """A short TTL may delete the job before the task resumes."""
    show(backend, instead)

    result = sensor().execute_complete(context(), SUCCEEDED)

    assert result == {"phase": "Succeeded"}


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.DELETED])
def test_the_resumed_sensor_fails_with_the_diagnosis(backend: ScriptedBackend, outcome: Outcome) -> None:
    """A retry would observe the same job: it does not help, even with a retryable diagnosis."""
    with pytest.raises(AirflowFailException, match="team/digits"):
        sensor().execute_complete(context(), event_of(SUBMISSION, outcome, diagnosis=Diagnosis.unknown()))
