"""Tests of the end of an attempt: the order of reporting, delivery, recording and deletion."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest

from fakes import ListSink, MemoryStore, ScriptedBackend, finished
from ptjob_provider.core.errors import ClusterUnavailable, JobFailed, JobTimedOut, OutputsNotVerified, PTJobError
from ptjob_provider.core.identity import JobRef, Owner
from ptjob_provider.core.run.follow import FollowOptions
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.session import Session
from ptjob_provider.core.run.submit import Submission, SubmitOptions, deliver_attempt
from ptjob_provider.core.spec import TensorBoard, TrainingJob
from ptjob_provider.core.spec.on_finish import OnFinishAction
from ptjob_provider.core.status import JobPhase, JobStatus

JOB = TrainingJob.parse(name="digits", namespace="team", image="digits:1", tfevents="pvc://models/logs")


class Try:
    """One attempt; `known` has each known job, and the TensorBoards that existed then."""

    def __init__(self, action: OnFinishAction = OnFinishAction.DELETE_JOB, *, hands_off: bool = False) -> None:
        self.backend, self.store, self.said = ScriptedBackend(), MemoryStore(), list[str]()
        self.backend.tensorboard_url = "http://10.0.0.7:30131/"
        self.known: list[tuple[JobRef, list[JobRef]]] = []
        self.session = Session(
            backend=self.backend,
            owner=Owner(instance="prod", ids={"task": "train"}, labels={}),
            store=self.store,
            sink=ListSink(),
            on_finish_action=action,
            api_error_timeout=1.0,
            tell=self.said.append,
            warn=lambda text: self.said.append(f"warning: {text}"),
            on_known=self.on_known,
            pauses=(0.0, 0.0),
            how_to_submit=SubmitOptions(exact_name=True),
            how_to_follow=FollowOptions(hands_off=hands_off),
        )

    async def on_known(self, submission: Submission) -> None:
        self.known.append((submission.ref, list(self.backend.tensorboards_ensured)))

    @cached_property
    def ref(self) -> JobRef:
        return asyncio.run(self.session.submit(JOB)).ref

    def finish(self, outcome: Outcome, *, is_open: bool = False) -> Any:
        status = JobStatus(phase=JobPhase.SUCCEEDED)
        ended = JobOutcome(outcome=outcome, status=status, result={"attempt": 1}, is_open=is_open)
        return asyncio.run(self.session.finish(self.ref, ended, deliver=self.deliver))

    def deliver(self, result: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        return result, bool(self.backend.jobs)


def end_job(backend: ScriptedBackend, ref: JobRef) -> None:
    key = (ref.namespace, ref.name)
    backend.jobs[key] = finished(backend.jobs[key])


async def test_a_job_is_known_before_its_tensorboard_is_created() -> None:
    """A try that is stopped meanwhile must know which job to stop."""
    trying, job = Try(), replace(JOB, tensorboard=TensorBoard())

    first = await trying.session.submit(job)
    second = await trying.session.submit(job)

    assert trying.known == [(first.ref, []), (first.ref, [first.ref])]
    assert [each.tensorboard_url for each in (first, second)] == [trying.backend.tensorboard_url] * 2
    assert (first.adopted, second.adopted) == (False, True)
    assert Submission.from_dict(first.to_dict()) == first


async def test_a_submission_without_a_response_is_repeated_after_each_pause_only() -> None:
    trying = Try()
    trying.backend.refusals["get"] = [ClusterUnavailable("no answer")] * 3

    with pytest.raises(ClusterUnavailable):
        await trying.session.submit(JOB)

    assert trying.said == ["trying again in 0 s: no answer"] * 2
    assert (await trying.session.submit(JOB)).adopted
    assert trying.backend.created == 1


def test_a_result_is_delivered_before_the_job_is_deleted() -> None:
    """If an adapter cannot take the result, the job is left for another try."""
    trying = Try()

    delivered = trying.finish(Outcome.SUCCEEDED)

    assert delivered == ({"attempt": 1}, True)
    assert not trying.backend.jobs
    assert trying.said == [f"{trying.ref} succeeded", f"{trying.ref} was deleted: on_finish_action=delete_job"]


@pytest.mark.parametrize(
    ("outcome", "is_open", "error"),
    [
        (Outcome.FAILED, False, JobFailed),
        (Outcome.UNVERIFIED, False, OutputsNotVerified),
        (Outcome.TIMED_OUT, True, JobTimedOut),
    ],
)
def test_an_attempt_that_failed_is_ended_and_one_that_the_next_try_goes_on_with_is_kept(
    outcome: Outcome, error: type[PTJobError], *, is_open: bool
) -> None:
    """Outputs that could not be inspected are only verified then; a job that could not be stopped is found again."""
    trying = Try()

    with pytest.raises(error):
        trying.finish(outcome, is_open=is_open)

    record = trying.store.load()
    assert record is not None
    assert record.ended is (outcome is Outcome.FAILED)
    assert bool(trying.backend.jobs) is not record.ended


def unverified(times: int = 1) -> Try:
    """Return an attempt whose job has ended, with tries that could not verify its outputs."""
    trying = Try(OnFinishAction.KEEP_JOB)
    for _ in range(times):
        assert asyncio.run(trying.session.submit(JOB)).ref == trying.ref
        end_job(trying.backend, trying.ref)
        with pytest.raises(OutputsNotVerified):
            trying.finish(Outcome.UNVERIFIED)
    return trying


@pytest.mark.parametrize("times", [1, 2])
def test_a_job_that_is_gone_before_its_outputs_were_verified_is_not_trained_again(times: int) -> None:
    """Its TTL was short, or somebody has pruned it; a clear trains anew."""
    trying = unverified(times)
    trying.backend.jobs.clear()

    with pytest.raises(OutputsNotVerified, match=r"outputs were never verified.*clear its Airflow task") as error:
        asyncio.run(trying.session.submit(JOB))
    assert (error.value.retryable, trying.backend.created) == (False, 1)
    cleared = replace(trying.session, how_to_submit=SubmitOptions(exact_name=True, clear_number=1))
    assert asyncio.run(cleared.submit(JOB)).attempt == 2


def test_a_job_that_is_gone_after_its_outputs_were_verified_is_trained_again() -> None:
    trying = unverified()
    trying.finish(Outcome.SUCCEEDED)
    deliver_attempt(trying.store, by_try=2)
    trying.backend.jobs.clear()

    assert asyncio.run(trying.session.submit(JOB)).attempt == 2


def test_a_job_of_another_owner_is_left_as_it_is() -> None:
    trying = Try(hands_off=True)

    delivered = trying.finish(Outcome.SUCCEEDED)

    assert delivered == ({"attempt": 1}, True)
    assert trying.backend.jobs
    assert not trying.backend.patches
