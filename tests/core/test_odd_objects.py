"""Tests that no object which an API server may send stops a job's verdict."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes import ScriptedBackend
from odd_objects import annotated, events, jobs, pods
from pods import NOW, container, ended, pod
from ptjob_provider.cli import tables
from ptjob_provider.cli.jobs import row_of
from ptjob_provider.core import containment, history, kinds
from ptjob_provider.core import diagnosis as diagnoses
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import Cause, Diagnosis, Limits
from ptjob_provider.core.errors import InvalidSpec, PTJobError
from ptjob_provider.core.history import PodHistory
from ptjob_provider.core.identity import OUTPUTS_ANNOTATION
from ptjob_provider.core.outputs.result import build_result
from ptjob_provider.core.run import attempts, snapshot
from ptjob_provider.core.run.progress import JobProgress
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.run.training_state import MAX_SIZE, TrainingState
from ptjob_provider.core.spec.parsers import MAX_PODS
from ptjob_provider.core.status import JobPhase, JobStatus, later

META = {"namespace": "team", "name": "digits", "uid": "u1", "creationTimestamp": "2026-11-20T09:00:00Z"}
TEMPLATE = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}


def job_of(kind: str, **role: Any) -> dict[str, Any]:
    """Return a job of this kind, whose only role has these fields."""
    spec = {
        "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": role}},
        "TrainJob": {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": role.get("replicas")}},
        "PyTorchTrainingJob": {"replicaSpecs": [{"type": "worker", **role}]},
    }
    return {"kind": kind, "metadata": META, "spec": spec[kind]}


def progress_of(job: dict[str, Any], *some_pods: dict[str, Any]) -> tuple[JobProgress, tuple[str, ...]]:
    """Return what a follower knows after one look at the job, and its sentences."""
    progress = JobProgress(submission=Submission.of(job), mask=str)
    update = progress.take(Observation(job=job, pods=some_pods), now=NOW)
    return progress, update.sentences


def failed(*some_pods: dict[str, Any]) -> Diagnosis:
    """Return the diagnosis of a failed job with these pods."""
    status = {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-20T10:00:00Z"}]}
    progress, _ = progress_of({**job_of("PyTorchJob", replicas=1, template=TEMPLATE), "status": status}, *some_pods)
    return diagnoses.diagnose(progress.pods, progress.status, ranks=progress.submission.ranks)


class TestReading:
    @pytest.mark.parametrize("kind", kinds.KINDS)
    def test_a_role_without_a_template_has_replicas(self, kind: str) -> None:
        """The CRDs of PyTorchJobs and PyTorchTrainingJobs do not require one."""
        job = job_of(kind, replicas=2)

        assert [(each.index, each.gpus) for each in kinds.replicas(job)] == [(0, 0), (1, 0)]
        assert kinds.secrets_in_env(job) == {}
        assert progress_of(job)[0].pods.notices == ()

    @pytest.mark.parametrize("kind", kinds.KINDS)
    def test_a_job_that_is_scaled_beyond_all_bounds_is_followed_as_far_as_a_job_may_be_large(self, kind: str) -> None:
        """`kubectl scale --replicas=3000000` would take 20 seconds and 855 MB of the process at each look."""
        job = job_of(kind, replicas=3_000_000, template=TEMPLATE)

        progress, sentences = progress_of(job)

        assert len(kinds.replicas(job)) == len(progress.submission.ranks) == MAX_PODS
        assert any("it asks for 10,000 pods or more; further ones are ignored here" in each for each in sentences)

    @pytest.mark.parametrize("kind", ["PyTorchJob", "PyTorchTrainingJob"])
    def test_a_job_without_replicas_has_no_rank_0(self, kind: str) -> None:
        progress, _ = progress_of(job_of(kind, replicas=0))

        assert progress.submission.rank0 == ""
        assert not progress.has_log

    def test_instants_far_away_are_none(self) -> None:
        last = datetime(9998, 12, 31, tzinfo=UTC)

        assert later(last, 86_399) == datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC)
        assert later(last, 86_400) is None
        assert later(datetime(1, 1, 1, tzinfo=UTC), -1) is None

    def test_declared_outputs_that_somebody_has_changed_are_an_error(self) -> None:
        """Without them, a job without its model would be a success."""
        job = job_of("PyTorchJob", replicas=1)

        with pytest.raises(InvalidSpec, match=rf"digits: somebody has changed its annotation {OUTPUTS_ANNOTATION}, "):
            Submission.of({**job, "metadata": {**META, "annotations": {OUTPUTS_ANNOTATION: "[" * 2048}}})


class TestVerdict:
    def test_a_run_that_began_after_its_end_is_diagnosed(self) -> None:
        """A node's clock may be set back while a container runs."""
        lost = 'Traceback (most recent call last):\n  File "t.py", line 1\nConnectionError: gloo/transport'
        earlier = ended(1, start=20, end=10, message="Traceback: 3")
        crash = pod(container(ended(1, start=20, end=10, message=lost), 1, **earlier))

        assert failed(crash).cause is Cause.EXIT_CODE


class TestContainment:
    """A fault is planted, because none is known."""

    def test_an_end_that_cannot_be_read_is_of_its_replica_and_has_its_traceback_in_the_log(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("ptjob_provider.core.diagnosis.classify._exited", lambda *_: 1 / 0)

        why = failed(pod(container(ended(3)), phase="Failed"))

        assert (why.cause, why.replica) == (Cause.UNKNOWN, "digits-worker-0")
        assert (
            "its end cannot be read: ZeroDivisionError('division by zero'); the traceback is in the log" in why.summary
        )
        assert "Traceback" in caplog.text

    def test_a_job_whose_cause_cannot_be_found_has_an_unknown_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ptjob_provider.core.diagnosis.root_cause.root_of", lambda *_: 1 / 0)
        record = history.observe(PodHistory(), pods=[pod(container(ended(3)))], now=NOW)

        assert failed(pod(container(ended(3)))).cause is Cause.UNKNOWN
        gone = diagnoses.deleted(record, ranks={})
        assert (gone.cause, "how it was before cannot be read: Zero" in gone.summary) == (Cause.DELETED, True)

    def test_pods_that_cannot_be_read_are_said_once_and_the_job_ends_as_its_object_says(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(history, "observe", lambda *_, **__: 1 / 0)
        monkeypatch.setattr("ptjob_provider.core.diagnosis.notices._grouped", lambda *_: 1 / 0)
        job = job_of("PyTorchJob", replicas=1, template=TEMPLATE)
        progress, sentences = progress_of(job, pod())
        again = progress.take(Observation(job=job, pods=[pod()]), now=NOW)

        assert sentences[0].startswith("team/digits: its pods cannot be read: ZeroDivisionError")
        assert again.sentences == ()
        assert progress.waiting.reason.startswith("why it waits cannot be read: Zero")
        progress.take(
            Observation(job={**job, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}), now=NOW
        )
        assert progress.status.phase == "Failed"

    def test_a_job_whose_status_cannot_be_read_runs_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing is known to have ended, and nobody is given up for a wait."""
        monkeypatch.setattr("ptjob_provider.core.kinds.pytorchjob._DECISIONS", None)
        monkeypatch.setattr("ptjob_provider.core.kinds.kind.template_in", lambda _: 1 / 0)
        job = job_of("PyTorchJob", replicas=1, template=TEMPLATE)

        status = kinds.read_status(job)

        assert (status.phase, status.message[:29]) == ("Running", "its status cannot be read: Ty")
        assert kinds.replicas(job) == ()

    def test_a_limit_that_cannot_be_judged_ends_no_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("timeouts._broken", "root_cause.candidates_of", "summary._failed_in_brief"):
            monkeypatch.setattr(f"ptjob_provider.core.diagnosis.{name}", lambda *_: 1 / 0)
        progress, _ = progress_of(job_of("PyTorchJob", replicas=1, template=TEMPLATE))
        succeeded = JobStatus(phase=JobPhase.SUCCEEDED)

        assert diagnoses.ending(progress.pods, progress.status, now=NOW, limits=Limits()) is None
        assert diagnoses.failed_replicas(progress.pods, ranks={}) == []
        assert diagnoses.in_brief("digits", progress.pods, succeeded, None, ranks={}) == "see ptjob get"

    def test_progress_that_cannot_be_shown_ends_no_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A triggerer tells that of all its jobs in turn."""
        progress, _ = progress_of(job := job_of("PyTorchJob", replicas=1, template=TEMPLATE))
        for name in ("_rows", "of_trainer"):
            monkeypatch.setattr(f"ptjob_provider.core.run.training_state.{name}", lambda *_, **__: 1 / 0)
        state = TrainingState()
        state.known = progress

        state.observe(job)

        assert state.to_dict() == {}

    def test_an_error_for_people_is_no_fault(self) -> None:
        """Such as that of a kind which is unknown."""
        with pytest.raises(PTJobError, match="kind: 'Unheard' is not allowed"):
            kinds.read_status({"kind": "Unheard"})


class _Raises(logging.Filter):
    """Raises again what the product contains and logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        assert record.exc_info
        raise record.exc_info[1] or AssertionError


@pytest.fixture
def _uncontained() -> Any:
    raises = _Raises()
    containment.logger.addFilter(raises)
    yield
    containment.logger.removeFilter(raises)


fuzzed = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
looks = st.lists(st.tuples(st.lists(pods, max_size=4), st.lists(events, max_size=3)), min_size=1, max_size=3)


@pytest.mark.usefixtures("_uncontained")
class TestEveryObject:
    """Values are drawn by the types of the schemas; an error fails the test although the product contains it."""

    @fuzzed
    @given(jobs, looks)
    def test_a_job_is_followed_to_a_verdict(self, job: dict[str, Any], looks: list[Any]) -> None:
        submission = Submission.of(job)
        progress = JobProgress(submission=submission, mask=str)
        ranks = submission.ranks
        for number, (some_pods, some_events) in enumerate(looks):
            now = NOW + number * timedelta(minutes=30)
            progress.take(Observation(job=job, pods=some_pods, events=some_events), now=now)
            silent = progress.silent()
            progress.add_messages(silent, ["" for _ in silent])
            record, status = progress.pods, progress.status
            why = diagnoses.diagnose(record, status, ranks=ranks)
            diagnoses.needs_events(record, status, ranks=ranks)
            diagnoses.ends_at(record, now=now, limits=Limits())
            diagnoses.outlook(record, limits=Limits(), deadline=now)
            diagnoses.blocked_waits(record)
            given_up = diagnoses.ending(record, status, now=now, limits=Limits(), ranks=ranks)
            ends = diagnoses.deleted(record, ranks=ranks), diagnoses.timed_out(record, ranks=ranks)
            for each in (why, given_up, *ends):
                assert each is None or (each.report(submission.ref) and Diagnosis.from_dict(json.loads(each.to_text())))
            result = build_result(
                submission, status=status, history=record, report=None, diagnosis=why, now=now, used=progress.used
            )
            json.dumps(result)

    @fuzzed
    @given(jobs, looks)
    def test_the_history_is_read_as_it_was_written(self, job: dict[str, Any], looks: list[Any]) -> None:
        record = PodHistory()
        for some_pods, some_events in looks:
            record = kinds.observe(record, job, some_pods, some_events, now=NOW, replicas=2)
        text = history.to_text(record)

        assert len(text.encode()) <= 16 * 1024
        assert history.to_text(history.from_text(text)) == text

    @fuzzed
    @given(annotated, st.lists(pods, max_size=2))
    def test_a_job_with_annotations_that_somebody_has_edited_is_listed_and_shown(
        self, job: dict[str, Any], some_pods: list[Any]
    ) -> None:
        tables.jobs([row_of(job)], now=NOW, with_namespace=True)
        progress, _ = progress_of(job, *some_pods)
        backend = ScriptedBackend()
        backend.jobs["team", "digits"] = job
        backend.worlds = [Observation(job=job, pods=some_pods)]
        shown = asyncio.run(snapshot.look(backend, "team", "digits", inspect=False, now=NOW))
        json.dumps(shown.to_dict())
        state = TrainingState()
        state.known = progress
        state.observe(job)
        assert len(json.dumps(state.to_dict())) <= MAX_SIZE
        assert attempts.with_own(job)
        tables.job(shown)
        tables.replicas(shown)
        tables.peaks(shown.used)
