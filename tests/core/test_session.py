"""Tests of the end of an attempt: the order of reporting, delivery, recording and deletion."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ListSink, MemoryStore, ScriptedBackend
from ptjob_provider.core.errors import JobFailed, JobTimedOut, OutputsNotVerified
from ptjob_provider.core.identity import JobRef, Owner
from ptjob_provider.core.run.follow import FollowOptions
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.session import Session
from ptjob_provider.core.run.submit import SubmitOptions
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.on_finish import OnFinishAction
from ptjob_provider.core.status import JobPhase, JobStatus

if TYPE_CHECKING:
    from ptjob_provider.core.run.submit import Submission


class Try:
    """One attempt whose job has ended."""

    def __init__(self, action: OnFinishAction = OnFinishAction.DELETE_JOB, *, hands_off: bool = False) -> None:
        self.backend, self.store, self.said = ScriptedBackend(), MemoryStore(), list[str]()
        self.session = Session(
            backend=self.backend,
            owner=Owner(instance="prod", ids={"task": "train"}, labels={}),
            store=self.store,
            sink=ListSink(),
            on_finish_action=action,
            api_error_timeout=1.0,
            tell=self.said.append,
            warn=lambda text: self.said.append(f"warning: {text}"),
            how_to_submit=SubmitOptions(exact_name=True),
            how_to_follow=FollowOptions(hands_off=hands_off),
        )
        self.submission: Submission = asyncio.run(self.session.submit(TrainingJob(name="digits", image="digits")))

    @property
    def ref(self) -> JobRef:
        return self.submission.ref

    def finish(self, outcome: Outcome, *, is_open: bool = False, **given: Any) -> Any:
        status = JobStatus(phase=JobPhase.SUCCEEDED)
        conclusion = JobOutcome(outcome=outcome, status=status, result={"attempt": 1}, is_open=is_open)
        return asyncio.run(self.session.finish(self.ref, conclusion, **{"deliver": self.deliver, **given}))

    def deliver(self, result: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        return result, bool(self.backend.jobs)


def test_a_result_is_delivered_before_the_job_is_deleted() -> None:
    """If an adapter cannot take the result, the job is left for another try."""
    trying = Try()

    delivered = trying.finish(Outcome.SUCCEEDED)

    assert delivered == ({"attempt": 1}, True)
    assert not trying.backend.jobs
    assert trying.said == [f"{trying.ref} succeeded", f"{trying.ref} was deleted: on_finish_action=delete_job"]


def test_a_failed_attempt_is_ended_and_its_job_deleted() -> None:
    trying = Try()

    with pytest.raises(JobFailed):
        trying.finish(Outcome.FAILED)

    record = trying.store.load()
    assert record is not None
    assert record.ended
    assert not trying.backend.jobs


def test_a_job_whose_outputs_could_not_be_inspected_is_kept() -> None:
    """The next try adopts it and only verifies."""
    trying = Try()

    with pytest.raises(OutputsNotVerified):
        trying.finish(Outcome.UNVERIFIED)

    record = trying.store.load()
    assert record is not None
    assert not record.ended
    assert trying.backend.jobs


def test_a_job_that_could_not_be_stopped_keeps_its_attempt_and_its_object() -> None:
    """The next try finds it, whatever became of it."""
    trying = Try()

    with pytest.raises(JobTimedOut):
        trying.finish(Outcome.TIMED_OUT, is_open=True)

    record = trying.store.load()
    assert record is not None
    assert not record.ended
    assert trying.backend.jobs


def test_a_job_of_another_owner_is_left_as_it_is() -> None:
    trying = Try(hands_off=True)

    delivered = trying.finish(Outcome.SUCCEEDED)

    assert delivered == ({"attempt": 1}, True)
    assert trying.backend.jobs
    assert not trying.backend.patches
