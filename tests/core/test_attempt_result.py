"""Tests of the annotation in which an attempt leaves its result for the next one: what it holds and how it is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.logs import LogCursor
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.recall import AttemptResult
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.status import JobPhase, JobStatus
from rows import each_row
from stand_in_watches import job

SUBMISSION = replace(Submission.of(job("digits-1")), attempt=2)
LONGEST = 64 * 1024
"""Bytes: a quarter of the limit for all annotations of an object."""


def conclusion(outcome: Outcome, **more: Any) -> JobOutcome:
    cursor = LogCursor(pod_uid="p", container="pytorch", restart_count=0, timestamp="2026-11-20T10:00:01Z", ordinal=1)
    return JobOutcome(outcome=outcome, status=JobStatus(phase=JobPhase.FAILED), cursor=cursor, **more)


def test_a_note_comes_back_as_it_was() -> None:
    note = AttemptResult.of(
        SUBMISSION, conclusion(Outcome.FAILED, diagnosis=Diagnosis.of(Cause.CONFIG, "no such secret"))
    )

    assert AttemptResult.read(note.to_text()) == note
    assert (note.attempt, note.ref, note.retry_may_help) == (2, SUBMISSION.ref, False)


def test_a_result_is_noted_without_its_curves() -> None:
    """They may exceed the size limit of an object's annotations."""
    tfevents = {"uri": "pvc://a/b", "scalars": {"loss": 0.5}}
    result = {"phase": "Succeeded", "model": None, "tfevents": {**tfevents, "curves": {"loss": [[1, 0.5]] * 10_000}}}

    note = AttemptResult.of(SUBMISSION, conclusion(Outcome.SUCCEEDED, result=result))

    assert note.outcome.result == {"phase": "Succeeded", "model": None, "tfevents": tfevents}
    assert len(note.to_text()) < LONGEST


def test_a_failure_is_noted_with_its_last_lines_and_one_diagnosis() -> None:
    """The diagnosis is part of the result too; it is not needed twice."""
    why = replace(Diagnosis.of(Cause.CRASHED, "it crashed"), log_tail=("x" * 500,) * 200)

    note = AttemptResult.of(SUBMISSION, conclusion(Outcome.FAILED, diagnosis=why, result={"diagnosis": why.to_dict()}))

    assert note.outcome.result is None
    assert len(note.to_text()) < LONGEST


@each_row("text", ["", "null", "[]", "{}", '{"ref": {}, "conclusion": {}}', "no JSON"])
def test_an_annotation_that_is_no_attempt_result_is_read_as_none(text: str) -> None:
    """Anybody may write annotations."""
    assert AttemptResult.read(text) is None
