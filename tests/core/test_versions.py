"""Tests of reading what other versions of the package wrote: older and newer ones, while both are in use."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes import MemoryStore, ScriptedBackend
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.history import peak_usage
from ptjob_provider.core.identity import (
    DIAGNOSIS_ANNOTATION,
    OUTPUTS_ANNOTATION,
    TENSORBOARD_ANNOTATION,
    USAGE_ANNOTATION,
    JobRef,
    Owner,
)
from ptjob_provider.core.logs import LogCursor
from ptjob_provider.core.outputs.contract import OutputReport
from ptjob_provider.core.run.attempts import AttemptRecord
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.submit import Submission, ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.tensorboard import TensorBoardPlan

REF = {"kind": "PyTorchJob", "namespace": "team", "name": "digits", "uid": "u-1"}
OUTPUT = {"uri": "pvc://models/m.pt", "claim": "models", "path": "m.pt", "container_path": "/data/m.pt"}
STATUS = {"phase": "Failed", "reason": "", "message": "", "created_at": None, "started_at": None, "finished_at": None}
CURSOR = {"pod_uid": "p", "container": "pytorch", "restart_count": 0, "timestamp": "2026-11-20T10:00:00Z", "ordinal": 0}
DIAGNOSIS = {"cause": "out_of_memory", "summary": "it", "resolution": "more", "retryable": False}
LISTS: dict[str, Any] = {"collateral": [], "also_failed": [], "log_tail": []}
SUBMISSION = {
    "ref": REF,
    "attempt": 1,
    "adopted": False,
    "spec_changed": False,
    "ranks": {"digits-master-0": 0},
    "gpus_of": {},
    "outputs": {"model": OUTPUT},
    "first_started_at": "2026-11-20T10:00:00Z",
}
CONCLUSION = {
    "outcome": "Failed",
    "status": STATUS,
    "diagnosis": {**DIAGNOSIS, **LISTS},
    "result": None,
    "cursor": CURSOR,
    "detail": "",
}
FIRST = [
    (AttemptRecord, {"attempt": 2, "name": "digits-1", "namespace": "team"}),
    (JobRef, REF),
    (LogCursor, CURSOR),
    (Submission, SUBMISSION),
    (Diagnosis, {**DIAGNOSIS, **LISTS}),
    (JobOutcome, CONCLUSION),
    (OutputReport, {"model": {"exists": True}}),
]
"""Fields that each version writes: a field that is added later has a default, for the readers of this."""


def with_more(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields as a version with more fields in each value would write them."""
    of_maps = {"ranks", "gpus_of"}
    deeper = {name: with_more(part) if isinstance(part, dict) else part for name, part in fields.items()}
    return {**deeper, **{name: fields[name] for name in of_maps & fields.keys()}, "of_a_newer_version": 1}


def picked(found: Any, like: Any) -> Any:
    """Return the part of the value that has the other one's fields."""
    return {name: picked(found[name], part) for name, part in like.items()} if isinstance(like, dict) else found


@pytest.mark.parametrize(("kind", "fields"), FIRST, ids=[kind.__name__ for kind, _ in FIRST])
def test_a_record_of_an_older_version_is_read(kind: Any, fields: dict[str, Any]) -> None:
    """Each field that it did not have gets its default, and nothing that it wrote is lost."""
    again = kind.from_dict(fields).to_dict()

    assert picked(again, fields) == fields


@pytest.mark.parametrize(("kind", "fields"), FIRST, ids=[kind.__name__ for kind, _ in FIRST])
def test_unknown_fields_in_a_record_of_a_newer_version_are_ignored(kind: Any, fields: dict[str, Any]) -> None:
    """After a downgrade, or while workers and triggerers are upgraded one after the other."""
    assert kind.from_dict(with_more(fields)) == kind.from_dict(fields)


def test_the_record_of_an_attempt_has_only_values_of_json() -> None:
    """Airflow's store of a task's state refuses a tuple, which `json` would write as a list."""
    written = AttemptRecord(attempt=1, name="digits", namespace="team", preemptions=[{"node": "node-1"}]).to_dict()

    assert written == json.loads(json.dumps(written))


def test_a_cause_that_is_not_known_here_is_an_unknown_one() -> None:
    found = Diagnosis.from_dict({**DIAGNOSIS, **LISTS, "cause": "eaten_by_a_cosmic_ray"})

    assert (found.cause, found.summary, found.resolution, found.retryable) == (Cause.UNKNOWN, "it", "more", False)
    assert JobOutcome.from_dict({**CONCLUSION, "diagnosis": found.to_dict()}).outcome is Outcome.FAILED


async def test_a_job_that_a_newer_version_has_made_is_read_and_adopted() -> None:
    """Its annotations on the job may have more fields."""
    job = TrainingJob.parse(
        name="digits", namespace="team", image="i", model="pvc://models/m.pt", volumes=["models:/data"],
        tfevents="pvc://models/logs", tensorboard=True,
    )  # fmt: skip
    backend, owner = ScriptedBackend(), Owner(instance="prod", ids={"dag_id": "d"}, labels={})
    made = await ensure_submitted(backend, job, owner=owner, store=MemoryStore())
    found = backend.jobs["team", made.ref.name]
    annotations = found["metadata"]["annotations"]
    for name in (OUTPUTS_ANNOTATION, TENSORBOARD_ANNOTATION):
        annotations[name] = json.dumps(with_more(json.loads(annotations[name])))
    annotations[DIAGNOSIS_ANNOTATION] = json.dumps(with_more({**DIAGNOSIS, **LISTS}))
    annotations[USAGE_ANNOTATION] = json.dumps({"digits-master-0": {"samples": 3, "of_a_newer_version": 1}})

    adopted = await ensure_submitted(backend, job, owner=owner, store=MemoryStore())

    assert (adopted.ref, adopted.outputs, backend.created) == (made.ref, made.outputs, 1)
    assert TensorBoardPlan.of(found) == TensorBoardPlan(claim="models", path="logs")
    assert (noted := Diagnosis.stored_in(found)) is not None
    assert noted.cause is Cause.OUT_OF_MEMORY
    assert peak_usage.stored_in(found) == {"digits-master-0": peak_usage.PeakUsage(samples=3)}
