"""Tests of what people are told about a followed job: its training's progress, its replicas, its earlier attempts."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.test_follow import MASTER, RUNS, WORKER, exited, job, pod, showing, started_again, submission
from fakes import ListSink
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import Diagnosis
from ptjob_provider.core.history import PodHistory, Termination
from ptjob_provider.core.identity import (
    CHECKPOINT_ANNOTATION,
    DIAGNOSIS_ANNOTATION,
    EARLIER_ANNOTATION,
    REPORTED_ANNOTATION,
    RESUMED_ANNOTATION,
)
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.run import training_state
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.progress import JobProgress
from ptjob_provider.core.run.training_state import MAX_SIZE, TrainingState
from ptjob_provider.core.status import JobPhase, JobStatus
from ptjob_provider.core.training_progress import ProgressReader, of_trainer
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

pytestmark = pytest.mark.skips_waits

EARLIER = {"attempt": 1, "job": "team/digits-1", "cause": "node_lost", "first_step": 1, "last_step": 40}
EARLIER |= {"started": "2026-11-20T12:00:00+00:00"}


def lines(*texts: str, begin: int = 0) -> list[LogLine]:
    """Return these lines of rank 0, one a second."""
    stamps = [f"2026-11-20T12:01:{second:02}Z" for second in range(begin, begin + len(texts))]
    cursor = LogCursor(pod_uid="p", container="pytorch", restart_count=0, timestamp="", ordinal=0)
    return [
        LogLine(text=text, timestamp=stamp, cursor=replace(cursor, timestamp=stamp))
        for text, stamp in zip(texts, stamps, strict=True)
    ]


def state_after(*taken: LogLine) -> TrainingState:
    """Return the state of a followed job after these lines."""
    state = TrainingState(None)
    state.known = JobProgress(submission=submission(), mask=str)
    for line in taken:
        state.take(line)
    return state


def known_of(state: TrainingState) -> JobProgress:
    assert state.known is not None
    return state.known


TRAINING = [f"step {number}/45 loss={1 / number}" for number in range(3, 9)]


async def outcome_of(*worlds: Observation, texts: list[str] = TRAINING, **options: Any) -> tuple[Any, Any]:
    """Return the outcome of following these observations, and the back-end."""
    backend = showing(*worlds)
    backend.lines = lines(*texts)
    state = TrainingState()
    outcome = await follow(backend, submission(), state=state, **{"sink": ListSink(), **options})
    return outcome, backend


async def test_the_outcome_has_the_last_state_of_the_training_and_of_its_replicas() -> None:
    """And the summaries of earlier attempts, from the job."""
    ended = [pod(MASTER, exited(0), phase="Succeeded"), pod(WORKER, exited(0), phase="Succeeded")]
    earlier = {EARLIER_ANNOTATION: json.dumps([EARLIER])}

    outcome, _ = await outcome_of(
        Observation(job=job("Running"), pods=[pod(MASTER, RUNS), pod(WORKER, RUNS)]),
        Observation(job=job("Running", "Succeeded", annotations=earlier), pods=ended),
    )

    told = outcome.progress
    expected = {"uid": "u-1", "attempt": 1, "phase": "Succeeded", "waits": "", "attempts": [EARLIER]}
    assert told.items() >= {**expected, "step": 8, "total": 45, "first_step": 3, "source": "line"}.items()
    assert told["metrics"] == {"loss": 0.125}
    assert (told["curve"]["step"], told["curve"]["metrics"]["loss"][:2]) == ([*range(3, 9)], [0.333333, 0.25])
    end = {"started": "2026-11-20T12:00:10+00:00", "ended": "2026-11-20T12:05:00+00:00", "exit_code": 0}
    row = {"phase": "Succeeded", "node": "n", **end, "reason": "Completed", "restarts": 0, "failed_first": False}
    assert told["replicas"] == [{"name": "master-0", "rank": 0, **row}, {"name": "worker-0", "rank": 1, **row}]
    assert type(outcome).from_dict(json.loads(json.dumps(outcome.to_dict()))).progress == told


async def test_a_failed_job_has_its_steps_beside_the_diagnosis_and_names_who_failed_first() -> None:
    """In the same request: nothing more is written on the job."""
    outcome, backend = await outcome_of(
        Observation(job=job("Running"), pods=[pod(MASTER, RUNS), pod(WORKER, RUNS)]),
        Observation(job=job("Failed"), pods=[pod(MASTER, RUNS), pod(WORKER, exited(3, "boom"), phase="Failed")]),
    )

    written = [change["metadata"]["annotations"] for change in backend.patches]
    noted = next(each for each in written if DIAGNOSIS_ANNOTATION in each)
    reported = {"first_step": 3, "last_step": 8, "rate": 1.0, "in_order": True}
    assert json.loads(noted.get(REPORTED_ANNOTATION, "{}")) == reported
    assert sum(REPORTED_ANNOTATION in each for each in written) == 1
    master, worker = outcome.progress["replicas"]
    assert (worker["phase"], worker["exit_code"], worker["failed_first"]) == ("Failed", 3, True)
    assert (master["reason"], master["failed_first"]) == ("stopped with the job", False)


def test_of_a_log_that_is_faster_than_anybody_reads_the_newest_lines_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looking at each of 50,000 lines a second would hold up all other jobs of a triggerer."""
    monkeypatch.setattr(training_state, "_SECONDS", 3600)
    (first,) = lines("step 1/9999 loss=1")

    with patch.object(ProgressReader, "feed", autospec=True, side_effect=ProgressReader.feed) as feed:
        state = state_after(*(replace(first, text=f"step {number}/9999 loss=1") for number in range(1, 5001)))
        reached = state.progress.step

    assert (reached, state.first_step, feed.call_count) == (5000, 1, 150)


async def test_a_later_attempt_says_once_where_it_went_on() -> None:
    """At its first step, by the step of its checkpoint and the steps of the attempt before.

    The sentence is in its result, too, and on its job, unless the job is only watched.
    """
    given = {CHECKPOINT_ANNOTATION: "2", EARLIER_ANNOTATION: json.dumps([{**EARLIER, "rate": 0.5}])}
    found = Observation(job=job("Failed", annotations=given), pods=[pod(MASTER, exited(1), phase="Failed")])
    sink = ListSink()

    outcome, backend = await outcome_of(found, sink=sink)
    watched, other = await outcome_of(found, hands_off=True)

    text = "attempt 1 resumed at step 2 of 45; 38 steps (1 min 16 s) repeated"
    assert [each for each in sink.notices if "resumed" in each] == [f"team/digits: {text}"]
    notes = [each["metadata"]["annotations"] for each in backend.patches]
    assert [each[RESUMED_ANNOTATION] for each in notes if RESUMED_ANNOTATION in each] == [text]
    assert (outcome.result["resumed"], outcome.progress["resumed"]) == (text, text)
    assert outcome.summary(submission().ref)["resumed"] == text
    assert (watched.result["resumed"], other.patches) == (text, [])


@each_row(
    ("texts", "in_order"),
    [
        (["step 3/45", "step 4/45", "step 44/45"], True),
        (["step 3/45", "step 44/45", "step 45/45"], False),  # of an epoch, or the training had nothing more to do
        (["epoch 1 step 8/45 loss=1", "epoch 2 step 3/45 loss=1"], False),
        ([f"step {number}/45" for number in (9, 3, 4, 5)], False),  # torchrun began again
        (["Epoch 1/3", "3/45 [==>...] - 1s 1ms/step - loss: 1.8", "Epoch 2/3"], False),
    ],
)
def test_steps_that_start_again_or_reach_their_total_are_not_in_order(texts: list[str], in_order: bool) -> None:  # noqa: FBT001
    state = state_after(*lines(*texts))

    assert (state.in_order, state.to_dict()["in_order"]) == (in_order, in_order)


@each_row(("texts", "options"), [([], {}), (TRAINING, {"hands_off": True})])
async def test_no_steps_are_written_if_there_are_none_or_if_the_job_is_somebody_elses(
    texts: list[str], options: dict[str, Any]
) -> None:
    _, backend = await outcome_of(Observation(job=job("Failed")), texts=texts, **options)

    assert not [each for each in backend.patches if REPORTED_ANNOTATION in each["metadata"]["annotations"]]


async def test_a_replica_that_was_started_again_runs_and_has_a_restart() -> None:
    again = started_again(pod(MASTER, RUNS), exited(1))

    outcome, _ = await outcome_of(
        Observation(job=job("Running"), pods=[again]), Observation(job=job("Succeeded"), pods=[again])
    )

    master, worker = outcome.progress["replicas"]
    assert (master["phase"], master["started"], master["restarts"]) == ("Running", "2026-11-20T12:00:10Z", 1)
    assert (worker["phase"], worker["node"]) == ("Pending", "")


def test_a_job_whose_pods_wait_says_why() -> None:
    state = state_after()
    known_of(state).waiting.reason = "no node has 8 GPUs"

    told = state.to_dict()

    assert (told["phase"], told["waits"], told["step"]) == ("Pending", "no node has 8 GPUs", None)
    assert told["curve"] == {"step": [], "at": [], "metrics": {}}


def test_a_state_is_empty_before_the_job_is_followed() -> None:
    assert (TrainingState().to_dict(), TrainingState().version) == ({}, (TrainingState().progress,))


def test_a_secret_in_the_tag_of_a_metric_is_masked() -> None:
    state = state_after(*lines("step 3/45 secret=0.5"))
    known_of(state).mask = lambda text: text.replace("secret", "***")

    told = state.to_dict()

    assert (told["metrics"], told["curve"]["metrics"]) == ({"***": 0.5}, {"***": [0.5]})


def test_the_version_changes_with_progress_and_observations_only() -> None:
    state = state_after(*lines("step 3/45"))
    before = state.version

    state.take(lines("saved a checkpoint", begin=1)[0])
    unchanged = state.version
    state.take(lines("step 4/45", begin=2)[0])

    assert (before == unchanged, before == state.version) == (True, False)
    read = state.version
    known_of(state).status = JobStatus(phase=JobPhase.RUNNING)
    assert state.version != read


def test_a_later_process_goes_on_from_the_stored_state() -> None:
    """Lines that it reads again are no steps back, and a bar without a description is known already."""
    bar = [f" {number}%|█ | {number}/100 [00:{number:02}<01:00,  1.00it/s]" for number in range(12)]
    log = lines(bar[0], bar[1], "{'loss': 0.5, 'epoch': 0.1}", *bar[2:])
    first, whole, later = state_after(*log[:9]), state_after(*log), state_after()

    later.resume(json.loads(json.dumps(first.to_dict())), log[4].cursor)
    for line in log[5:]:
        later.take(line)

    assert later.progress.step == whole.progress.step == 11
    assert later.first_step == whole.first_step == 1
    assert later.to_dict()["curve"] == whole.to_dict()["curve"]


def test_a_later_process_goes_on_within_a_line_that_has_not_ended() -> None:
    """All its pieces have one timestamp, and the training's state that of the newest."""
    bar = [f"\rTraining: {n}%|█ | {n}/100 [00:{n}<01:00,  1.00it/s]" for n in (20, 30, 40, 50)]
    log = [replace(line, timestamp=lines("")[0].timestamp, continues=True) for line in lines(*bar)]
    log = [
        replace(line, cursor=replace(line.cursor, timestamp=line.timestamp, ordinal=ordinal))
        for ordinal, line in enumerate(log)
    ]
    first, later = state_after(*log[:2]), state_after()

    later.resume(json.loads(json.dumps(first.to_dict())), log[1].cursor)
    for line in log[2:]:
        later.take(line)

    assert (first.progress.step, later.progress.step) == (30, 50)
    assert first.progress.at < later.progress.at


@each_row(("stored", "in_order"), [({}, True), ({"uid": "u-1", "cursor": None}, False), ({"in_order": True}, True)])
def test_a_state_without_progress_begins_anew(stored: dict[str, Any], *, in_order: bool) -> None:
    """The row of an older version has a cursor alone, and says nothing of the order of steps."""
    state = state_after()

    state.resume(stored, lines("", begin=0)[0].cursor)
    state.take(lines("step 3/45")[0])

    assert (state.progress.step, state.first_step, state.in_order) == (3, 3, in_order)


def test_a_line_that_cannot_be_read_ends_the_reading_with_one_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log and the job go on."""
    state = state_after(*lines("step 3/45"))
    monkeypatch.setattr("ptjob_provider.core.training_progress.ProgressReader.feed", lambda *_: 1 / 0)

    for line in lines("step 4/45", "step 5/45", begin=1):
        state.take(line)

    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert (len(errors), state.progress.step) == (1, 3)


TEXTS = st.text(max_size=300)
UNKNOWN = Diagnosis.unknown()


@given(
    tags=st.lists(st.text(min_size=1, max_size=64), max_size=16, unique=True),
    replicas=st.integers(0, 200),
    text=TEXTS,
    failed=st.integers(0, 199),
)
def test_any_state_fits_into_its_limit(tags: list[str], replicas: int, text: str, failed: int) -> None:
    """The replica that failed first is among the rows, however many there are."""
    names = [f"digits-worker-{number}" for number in range(replicas)]
    state = state_after(
        *lines(*(json.dumps({"step": step, "loss": 1.0, **dict.fromkeys(tags, 0.1)}) for step in "123"))
    )
    known = known_of(state)
    state.earlier = [{"attempt": 1, "message": text}]
    known.submission = replace(submission(), ranks={name: rank for rank, name in enumerate(names)})
    ends = tuple(Termination(replica=name, key=name, exit_code=1, reason=text) for name in names)
    known.record = PodHistory(terminations=ends, nodes=tuple((name, "node" * 60, "") for name in names))
    known.waiting.reason = text
    known.noted = replace(UNKNOWN, replica=f"digits-worker-{failed}")

    told = state.to_dict()

    assert len(json.dumps(told)) <= MAX_SIZE
    assert len(told["replicas"]) + told["replicas_left_out"] == replicas
    assert [row["rank"] for row in told["replicas"]] == sorted(row["rank"] for row in told["replicas"])
    assert [row["rank"] for row in told["replicas"] if row["failed_first"]] == ([failed] if failed < replicas else [])


def trainer_status(**told: Any) -> Manifest:
    return {"metadata": {}, "status": {"trainerStatus": {"lastUpdatedTime": "2026-11-20T12:02:00Z", **told}}}


DOCUMENTED = trainer_status(
    progressPercentage=45,
    estimatedRemainingSeconds=795649,
    metrics=[{"name": "loss", "value": "0.2347"}, {"name": "currentEpoch", "value": "2"}],
)
"""The example of KEP-2779, with its texts as values."""


def test_what_trainer_reports_counts_before_the_log() -> None:
    """Its percent are steps of 100, and the curve of the log's steps ends."""
    state = state_after(*lines("step 3/45"))

    state.observe(DOCUMENTED)
    state.take(lines("step 4/45", begin=1)[0])
    state.observe(DOCUMENTED)

    told = state.to_dict()
    assert (told["step"], told["total"], told["eta"], told["source"]) == (45, 100, 795649, "trainerStatus")
    assert told["metrics"] == {"loss": 0.2347, "currentEpoch": 2.0}
    assert (told["first_step"], told["curve"]["step"], told["in_order"]) == (45, [45], False)
    state.observe(trainer_status(progressPercentage=46))
    assert (state.progress.step, state.first_step) == (46, 45)


@each_row(
    "found",
    [
        {},
        {"status": None},
        trainer_status(),
        trainer_status(lastUpdatedTime="soon", progressPercentage=4),
        trainer_status(metrics=[{"name": "loss", "value": "low"}]),
        trainer_status(metrics=[{"title": "loss"}]),
    ],
)
def test_a_job_of_which_trainer_reports_nothing_is_read_from_its_log(found: Manifest) -> None:
    assert of_trainer(found) is None
