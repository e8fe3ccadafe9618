"""Tests of attempts: when a new one starts, and which existing job belongs to this task."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ptjob_provider.core.diagnosis import Diagnosis
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import MAX_NAME, JobRef, Owner, owner_annotation
from ptjob_provider.core.run.attempts import (
    AttemptRecord,
    Ownership,
    is_delivered,
    newest,
    ownership_of,
    summary,
)
from ptjob_provider.core.spec.limits import LIMITS
from ptjob_provider.core.status import JobPhase, JobStatus
from rows import each_row

OWNER = Owner(instance="prod", ids={"dag_id": "d"}, labels={})
RECORD = AttemptRecord(attempt=2, name="digits-1", namespace="team", uid="u-1", clear_number=3)


FOUND = {
    "metadata": {
        "uid": "u-1",
        "name": "digits-1",
        "annotations": {"ptjob-provider/owner": owner_annotation(OWNER, 2), "ptjob-provider/spec-hash": "abc"},
    }
}


@each_row(
    ("delivered_by", "tries_before_clear", "expected"),
    [(0, 0, False), (0, 3, False), (1, 0, False), (2, 1, False), (1, 1, True), (1, 2, True), (1, -1, False)],
)
def test_a_result_delivered_before_the_last_clear_counts_as_delivered(
    delivered_by: int, tries_before_clear: int, *, expected: bool
) -> None:
    """What a later try handed on is handed on again, because Airflow may not have stored it."""
    record = replace(RECORD, delivered_by=delivered_by)

    assert is_delivered(record, tries_before_clear=tries_before_clear) is expected
    assert not is_delivered(None, tries_before_clear=tries_before_clear)


@each_row("phase", [JobPhase.SUCCEEDED, JobPhase.FAILED])
@each_row(
    ("record", "expected"),
    [
        (RECORD, Ownership.ADOPT),
        (AttemptRecord(attempt=2, name="digits-1", namespace="team"), Ownership.ADOPT),
        (AttemptRecord(attempt=2, name="digits-1", namespace="team", uid="u-9"), Ownership.HISTORY),
        (AttemptRecord(attempt=2, name="digits-2", namespace="team", uid="u-1"), Ownership.HISTORY),
        (AttemptRecord(attempt=2, name="digits-1", namespace="team", uid="u-1", ended=True), Ownership.HISTORY),
        (None, Ownership.HISTORY),
    ],
)
def test_a_finished_job_is_ours_only_if_the_store_expects_it(
    phase: JobPhase, record: AttemptRecord | None, expected: Ownership
) -> None:
    """The store must have its uid or an open attempt of its name; otherwise the job is from an earlier run."""
    assert ownership_of(FOUND, phase=phase, owner=OWNER, record=record) is expected


def test_a_record_of_an_older_version_means_what_it_meant_then() -> None:
    """Older records have no uid, no clear number and no kind."""
    record = AttemptRecord.from_dict({"attempt": 2, "name": "digits-1", "namespace": "team"})

    assert (record.uid, record.ended, record.clear_number, record.kind) == (None, False, 0, "PyTorchJob")
    assert not record.delivered_by


def test_the_summaries_that_the_largest_no_progress_limit_needs_fit_together() -> None:
    """With texts as long as they may be, in ASCII; of more attempts, only the newest would count."""
    why = replace(Diagnosis.unknown("x" * 400), resolution="x" * 400)
    ref = JobRef(kind="PyTorchJob", namespace="n" * 63, name="j" * MAX_NAME, uid="u" * 36)
    at = datetime(2026, 11, 20, 10, 0, 0, tzinfo=UTC)
    status = JobStatus(phase=JobPhase.FAILED, created_at=at, started_at=at, finished_at=at)
    steps = {"first_step": 10**12, "last_step": 10**12, "rate": 1 / 3, "in_order": True}
    told = [
        summary(ref, attempt=number, status=status, outcome="Failed", why=why, reported=steps, resumed="x" * 120)
        for number in range(1, 10)
    ]

    assert len(newest(told)) >= 3 == LIMITS["no_progress_limit"]("no_progress_limit", 3)
    with pytest.raises(InvalidSpec):
        LIMITS["no_progress_limit"]("no_progress_limit", 4)
