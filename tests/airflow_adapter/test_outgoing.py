"""Property tests of events and XComs on the way through Airflow's own parts: msgpack, serializers, JSON of its API."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import msgspec
from airflow.sdk.execution_time.comms import SetXCom, _RequestFrame
from airflow.triggers.base import TriggerEvent
from hypothesis import example, given
from pydantic import JsonValue, TypeAdapter

from airflow_adapter.stand_ins import ListLogger, StandInTaskInstance, job_object
from core.odd_values import NUMBERS, ODD, OTHERS, TEXTS, strict
from ptjob_provider.airflow.compat import AIRFLOW
from ptjob_provider.airflow.lineage import model_extra
from ptjob_provider.airflow.outcome import JobEvent, push_result
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.status import JobPhase, JobStatus

serde = import_module("airflow.sdk.serde" if AIRFLOW >= (3, 2) else "airflow.serialization.serde")
SUBMISSION = Submission.of(job_object())


def check_that_airflow_stores(value: Any) -> None:
    """Take the value from a process to its supervisor, into the database and through the API to another process."""
    try:
        frame = _RequestFrame(id=1, body={"events": [(7, TriggerEvent(value).payload)]}).as_bytes()
        sent = msgspec.msgpack.decode(frame[4:])[1]["events"][0][1]
        stored = json.dumps(serde.serialize({"event": sent}), allow_nan=False)
        assert "\\u0000" not in stored.replace("\\\\", "")
        stored.encode()
        read = TypeAdapter(JsonValue).validate_json(stored)
        assert serde.deserialize(json.loads(json.dumps(read), parse_constant=strict))["event"] == value
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise AssertionError(f"Airflow ends at this value: {error}") from error


def event(value: Any) -> dict[str, Any]:
    """Return the event of a job whose program wrote the value into everything."""
    text = str(value)[:2000]
    why = Diagnosis.of(Cause.PYTHON_EXCEPTION, text, log_tail=(text, "\ud800\0"), exception=text)
    status = JobStatus(phase=JobPhase.SUCCEEDED, message=text, reason=text)
    result = {"return_value": value, "tfevents": {"scalars": {"loss": value}}, "failed_replicas": [{"message": text}]}
    outcome = JobOutcome(outcome=Outcome.SUCCEEDED, status=status, diagnosis=why, result=result, detail=text)
    return JobEvent(submission=SUBMISSION, outcome=outcome, error=text).to_dict()


@given(ODD)
@example(NUMBERS)
@example(TEXTS)
@example(OTHERS)
def test_a_triggers_event_passes_through_airflow(value: Any) -> None:
    fields = event(value)

    check_that_airflow_stores(fields)
    assert JobEvent.from_dict(fields).submission == SUBMISSION


@given(ODD)
@example(NUMBERS)
@example(OTHERS)
def test_xcoms_and_lineage_pass_through_airflow(value: Any) -> None:
    ti, log = StandInTaskInstance(), ListLogger()
    result = {"tfevents": {"uri": "pvc://a/b", "scalars": {"loss": value}}, "usage": {"replicas": value}}

    push_result(ti, result, log)

    for key, pushed in ti.pushed.items():
        check_that_airflow_stores(
            SetXCom(key=key, value=pushed, dag_id="d", task_id="t", run_id="r").model_dump()["value"]
        )
    check_that_airflow_stores(model_extra({"tfevents": {**result["tfevents"], "last_step": value}}, data_version="\0"))


def test_a_scalar_that_airflow_cannot_store_is_a_text_and_the_log_says_so() -> None:
    ti, log = StandInTaskInstance(), ListLogger()

    push_result(ti, {"tfevents": {"scalars": {"loss": 2**64}}}, log)

    assert ti.pushed["metric_loss"] == str(2**64)
    assert "the value (an integer beyond 64 bits)" in str(log.warnings)
