"""Tests of the trigger: data that crosses processes, when a job is deleted, and that no log line is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_adapter.stand_ins import (
    OWNED,
    SOON,
    StandInSupervisor,
    job_object,
    pod_object,
    trigger_of,
    until,
)
from airflow_adapter.stand_ins import log_line as line
from airflow_versions import since
from ptjob_provider.airflow import supervisor
from ptjob_provider.airflow.connection import ConnectionArgs, ConnectionMissing
from ptjob_provider.airflow.outcome import JobEvent, TriggerFailed
from ptjob_provider.airflow.task_log.progress_store import PROGRESS
from ptjob_provider.airflow.task_log.rate_limiter import RateLimiter
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import UNFOLLOWED_ANNOTATION
from ptjob_provider.core.run.outcome import Outcome

if TYPE_CHECKING:
    from airflow_adapter.stand_ins import FakeComms
    from fakes import ScriptedBackend
    from ptjob_provider.airflow.connection import ResolvedConnection
    from ptjob_provider.airflow.triggers import PyTorchJobTrigger

pytestmark = pytest.mark.usefixtures("comms")

KEY = ("team", "digits")
RUNS = {"running": {"startedAt": "2026-11-20T10:00:00Z"}}
MARK = "── lines since 2026-11-20T10:00:02Z may be repeated: another process wrote this log before ──"


def trigger(**arguments: Any) -> PyTorchJobTrigger:
    return trigger_of(job_object(annotations=OWNED), **arguments)


def log_of(made: PyTorchJobTrigger) -> list[str]:
    logger: Any = made._log
    return [line for line in logger.text.split("\n") if line.startswith(("line", "──"))]


def show(backend: ScriptedBackend, condition: str | None = None, *, lines: int = 0) -> None:
    """Set the job and its number of log lines; without a condition it runs and its log continues."""
    backend.lines = [line(number) for number in range(1, lines + 1)]
    backend.jobs[KEY] = job_object("digits", condition)
    pods = [] if condition else [pod_object("digits-master-0", RUNS, "Running")]
    backend.worlds = [Observation(job=backend.jobs[KEY], pods=pods)]
    backend.log_hangs = condition is None


def store_cursor(comms: FakeComms, number: int, *, uid: str = "u-1") -> None:
    """Store the cursor of an earlier run of the trigger in Airflow."""
    comms.xcoms[PROGRESS] = {"uid": uid, "cursor": line(number).cursor.to_dict()}


async def fired(made: PyTorchJobTrigger) -> dict[str, Any]:
    """Return the payload of the one event."""
    events = [event async for event in made.run()]
    assert len(events) == 1
    payload: dict[str, Any] = json.loads(json.dumps(events[0].payload))
    return payload


async def follow(made: PyTorchJobTrigger, *, lines: int) -> None:
    """Run the trigger until its log has this many lines, then stop it."""
    async with running(made, lines=lines):
        pass


@contextlib.asynccontextmanager
async def running(made: PyTorchJobTrigger, *, lines: int = 0) -> Any:
    """Run the trigger; enter the block once its log has this many lines."""

    async def exhaust() -> None:
        async for _ in made.run():
            pass

    task = asyncio.create_task(exhaust())
    await until(lambda: len(log_of(made)) >= lines, f"{lines} lines in the log")
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


SUBMITTED = {
    "ref": {"kind": "PyTorchJob", "namespace": "team", "name": "digits", "uid": "u-1"},
    "attempt": 1,
    "adopted": False,
    "spec_changed": False,
    "ranks": {"digits-master-0": 0, "digits-worker-0": 1},
    "gpus_of": {"digits-master-0": 0, "digits-worker-0": 0},
    "outputs": {},
    "first_started_at": "2026-11-20T10:00:00Z",
}
MORE = {"of_a_newer_version": 1}


@pytest.mark.parametrize(
    "row",
    [
        {"submission": SUBMITTED},
        {
            "submission": {**SUBMITTED, **MORE, "ref": {**SUBMITTED["ref"], **MORE}, "outputs": MORE},  # type: ignore[dict-item]
            "limits": {"start_timeout": 5, **MORE},
            **MORE,
        },
    ],
    ids=["older", "newer"],
)
async def test_a_triggers_row_of_another_version_is_followed(backend: ScriptedBackend, row: dict[str, Any]) -> None:
    """If a trigger cannot be built from its row, Airflow fails the task, and the job is left without a decision."""
    show(backend, "Succeeded")

    received = JobEvent.from_dict(await fired(trigger(**row)))

    assert (received.required_outcome().outcome, received.submission.ref.uid) == (Outcome.SUCCEEDED, "u-1")


def test_an_event_of_another_version_tells_how_the_job_ended() -> None:
    """The triggerer may be upgraded before or after the workers."""
    status = dict.fromkeys(("created_at", "started_at", "finished_at"))
    conclusion = {
        "outcome": "Succeeded",
        "status": {"phase": "Succeeded", "reason": "", "message": "", **status, **MORE},
    }
    rest = {"diagnosis": None, "result": {"phase": "Succeeded"}, "cursor": None, "detail": ""}
    event = {"submission": SUBMITTED, "error": "", "retryable": True, "cursor": None, "knows_place": False}

    for more in ({}, MORE):
        received = JobEvent.from_dict({**event, "conclusion": {**conclusion, **rest, **more}, **more})

        assert received.required_outcome().result == {"phase": "Succeeded"}


@pytest.mark.parametrize(("condition", "outcome"), [("Succeeded", Outcome.SUCCEEDED), ("Failed", Outcome.FAILED)])
async def test_the_event_tells_how_the_job_ended(backend: ScriptedBackend, condition: str, outcome: Outcome) -> None:
    show(backend, condition, lines=2)
    made = trigger()

    received = JobEvent.from_dict(await fired(made))

    assert received.required_outcome().outcome is outcome
    assert (received.submission.ref.uid, received.cursor) == ("u-1", line(2).cursor)
    assert log_of(made) == ["line 1", "line 2"]


@pytest.mark.skips_waits
async def test_a_trigger_that_cannot_connect_waits_until_it_can(
    monkeypatch: pytest.MonkeyPatch, backend: ScriptedBackend
) -> None:
    """As a triggerer that starts while a secrets backend is away: none of its tasks fails."""
    show(backend, "Succeeded")
    resolve, failures = ConnectionArgs.async_resolve, [ConnectionMissing("away"), InvalidSpec("no number")]

    async def resolve_later(args: ConnectionArgs) -> ResolvedConnection:
        if failures:
            raise failures.pop()
        return await resolve(args)

    monkeypatch.setattr(ConnectionArgs, "async_resolve", resolve_later)

    received = JobEvent.from_dict(await fired(trigger()))

    assert received.required_outcome().outcome is Outcome.SUCCEEDED


async def test_a_connection_that_cannot_be_read_is_asked_for_once_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand tasks ask again every few seconds."""
    asked: list[ConnectionArgs] = []

    async def refuse(args: ConnectionArgs) -> ResolvedConnection:
        asked.append(args)
        await asyncio.sleep(0)  # the others ask meanwhile
        raise ConnectionMissing("away")

    monkeypatch.setattr(ConnectionArgs, "resolve_uncached", refuse)

    found = await asyncio.gather(*(ConnectionArgs().async_resolve() for _ in range(3)), return_exceptions=True)

    assert [type(each) for each in found] == [ConnectionMissing] * 3
    assert len(asked) == 1


async def test_a_wrong_setting_of_the_triggerer_is_an_event_that_can_be_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job is not changed, and the worker may have another setting."""
    monkeypatch.setenv("AIRFLOW__PTJOB__BACKEND", "elsewhere")
    monkeypatch.setenv("AIRFLOW__PTJOB__API_ERROR_TIMEOUT", "0")

    event = await fired(trigger())

    with pytest.raises(TriggerFailed, match=r"\[ptjob\] backend") as error:
        JobEvent.from_dict(event).required_outcome()
    assert error.value.retryable


async def test_an_unexpected_error_is_an_event_that_can_be_retried(backend: ScriptedBackend) -> None:
    """The job is not changed, and the next try adopts it."""
    show(backend)

    received = JobEvent.from_dict(await fired(trigger(deadline="soon")))

    with pytest.raises(TriggerFailed, match="the trigger failed: ValueError") as error:
        received.required_outcome()
    assert error.value.retryable
    assert backend.jobs


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("deferred", True),
        (None, True),
        ("up_for_retry", True),
        ("running", True),
        ("restarting", True),
        ("none", False),
        ("failed", False),
    ],
)
async def test_on_kill_asks_before_it_deletes(
    backend: ScriptedBackend, comms: FakeComms, state: str | None, *, kept: bool
) -> None:
    """A frozen and replaced triggerer calls `on_kill` although the task is deferred, resumed, or in its next try."""
    show(backend)
    comms.state = state

    await trigger().on_kill()

    assert bool(backend.jobs) is kept


async def test_on_kill_waits_longer_than_others_for_an_airflow_that_is_slow(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a response, the job of a task that a person has marked would run on."""
    show(backend)
    comms.state = "failed"
    monkeypatch.setattr(supervisor, "TRIGGER_PATIENCE", 0.01)
    answer = comms.asend

    async def answer_late(question: Any) -> Any:
        await asyncio.sleep(0.1)
        return await answer(question)

    monkeypatch.setattr(comms, "asend", answer_late)

    await trigger().on_kill()

    assert not backend.jobs


@pytest.mark.parametrize(
    ("deferred_at", "kept"),
    [("2026-11-20T11:00:00+00:00", True), (None, True), ("2026-11-20T13:00:00+00:00", False)],
)
async def test_on_kill_keeps_a_job_that_the_last_try_has_left_running_since_the_deferral(
    backend: ScriptedBackend, comms: FakeComms, deferred_at: str | None, *, kept: bool
) -> None:
    """The task failed because its job could not be followed; a frozen triggerer would take that for a user's action."""
    show(backend)
    backend.jobs[KEY]["metadata"]["annotations"][UNFOLLOWED_ANNOTATION] = "2026-11-20T12:00:00+00:00"
    comms.state = "failed"

    await trigger(deferred_at=deferred_at).on_kill()

    assert bool(backend.jobs) is kept


async def test_a_trigger_that_has_fired_asks_and_writes_nothing(backend: ScriptedBackend, comms: FakeComms) -> None:
    """The event contains the cursor, and the task may be resumed by now."""
    show(backend, "Succeeded")
    made = trigger()
    await fired(made)
    before = list(comms.questions)

    await made.on_kill()
    await made.cleanup()

    assert comms.questions == before


@pytest.mark.parametrize(("condition", "hands_off"), [(None, True), ("Failed", False)])
async def test_on_kill_keeps_somebody_elses_job_and_a_finished_one(
    backend: ScriptedBackend, comms: FakeComms, condition: str | None, *, hands_off: bool
) -> None:
    """Marking a sensor as failed must not stop another user's training."""
    show(backend, condition)
    comms.state = "failed"

    await trigger(hands_off=hands_off).on_kill()

    assert backend.jobs


@pytest.mark.parametrize(
    ("stored", "lines"),
    [
        pytest.param({"number": 2}, [MARK, "line 3"], id="another process wrote it"),
        pytest.param({"number": 9, "uid": "u-0"}, ["line 1", "line 2", "line 3"], id="it had another job"),
        pytest.param(None, ["line 1", "line 2", "line 3"], id="it is the first"),
    ],
)
async def test_a_trigger_goes_on_with_the_log_where_an_earlier_run_stopped(
    backend: ScriptedBackend, comms: FakeComms, stored: dict[str, Any] | None, *, lines: list[str]
) -> None:
    """No line is missing; one notice says from when on lines may be repeated."""
    show(backend, "Succeeded", lines=3)
    if stored:
        store_cursor(comms, **stored)
    made = trigger()

    await fired(made)

    assert log_of(made) == lines


@pytest.mark.parametrize("stored", [None, 2])
async def test_a_life_is_on_record_before_its_first_line(
    backend: ScriptedBackend, comms: FakeComms, stored: int | None
) -> None:
    """A later run can tell from it that this one was killed, and where an earlier run had stopped."""
    show(backend, lines=3)
    if stored:
        store_cursor(comms, stored)
    records: list[int] = []
    made = trigger()
    logger: Any = made._log
    logger.on_record = lambda: records.append(len(comms.history))

    await follow(made, lines=1)

    [(_, kept)] = comms.history
    assert kept.items() >= {"uid": "u-1", "cursor": line(stored).cursor.to_dict() if stored else None}.items()
    assert records[-1] == 1


@since(3, 3, "`on_kill` of triggers: `cleanup` asks nothing")
async def test_a_job_that_waits_asks_and_writes_nothing(backend: ScriptedBackend, comms: FakeComms) -> None:
    """Ten thousand jobs may wait in queues, and one process answers all requests."""
    show(backend, lines=1)
    backend.worlds = [Observation(job=backend.jobs[KEY])]
    made = trigger()

    async with running(made):
        await until(lambda: backend.shown > 0, "the trigger to watch its job")
        await asyncio.sleep(0.2)
    await made.cleanup()

    assert (comms.questions, comms.history) == ([], [])


@since(3, 3, "`on_kill` of triggers: `cleanup` asks nothing")
async def test_cleanup_does_not_wait_for_an_answer_that_never_comes(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A triggerer that stops reads no more answers; it would be killed after 30 s."""
    monkeypatch.setattr(supervisor, "TRIGGER_PATIENCE", None)  # to wait for the answer is to wait for ever
    show(backend, lines=1)
    made = trigger()
    await follow(made, lines=1)
    comms.hangs = True

    async with asyncio.timeout(SOON):
        await made.cleanup()


async def test_cleanup_after_on_kill_leaves_the_cursor_to_whoever_has_the_job(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """A frozen and replaced triggerer has an older cursor than its successor."""
    show(backend, lines=1)
    comms.state = "deferred"
    made = trigger()
    await follow(made, lines=1)
    await made.on_kill()
    store_cursor(comms, 9)

    await made.cleanup()

    assert comms.xcoms[PROGRESS]["cursor"] == line(9).cursor.to_dict()


async def test_an_event_says_whether_its_place_in_the_log_is_known(backend: ScriptedBackend) -> None:
    """For a job that never had a log the cursor was not requested; the resumed task reads it itself."""
    backend.worlds = [Observation(job=None)]
    never_read = await fired(trigger())
    show(backend, "Succeeded")
    backend.shown = 0
    read = await fired(trigger())

    assert (never_read["knows_place"], read["knows_place"]) == (False, True)


async def test_a_place_in_the_log_that_airflow_does_not_tell_costs_repeated_lines_only(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """The job is followed anyway, and the log says that lines may be repeated."""
    show(backend, "Succeeded", lines=2)
    comms.refuses = True
    made = trigger()

    payload = await fired(made)

    mark, *lines = log_of(made)
    assert payload["conclusion"]["outcome"] == Outcome.SUCCEEDED
    assert mark.startswith("── lines since the beginning may be repeated: Airflow did not say")
    assert lines == ["line 1", "line 2"]


async def test_an_event_waits_for_its_log_as_long_as_some_of_it_leaves(
    backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow drops unsent records when the event arrives, and a slow triggerer takes long to read them."""
    airflow = StandInSupervisor(5, at_a_time=1)
    limiter = RateLimiter(1000, airflow.unread)
    monkeypatch.setattr("ptjob_provider.airflow.triggers.rate_limiters", SimpleNamespace(get=lambda: limiter))
    monkeypatch.setattr("ptjob_provider.airflow.triggers._ARRIVAL", 0.01)  # 5 s in production
    show(backend, "Succeeded")

    await fired(trigger())

    assert airflow.left == 0


async def test_a_short_deferral_is_not_ended_before_the_workers_own_end(
    backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow fails a task that is queued again before its worker's end is recorded, which takes up to 5 s.

    The worker still has work to do after it defers: a trigger that starts late waits just as long.
    """
    monkeypatch.setattr("ptjob_provider.airflow.triggers.SHORTEST", 1.0)  # 7 s in production
    show(backend, "Succeeded")
    monkeypatch.setattr("ptjob_provider.airflow.triggers.PyTorchJobTrigger._age", lambda _: 0.8)
    began = time.monotonic()

    await fired(trigger())

    assert time.monotonic() - began >= 1.0


async def test_a_trigger_that_another_triggerer_takes_over_later_waits_for_no_worker(
    backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ptjob_provider.airflow.triggers.SHORTEST", 1e6)  # the test would never end
    show(backend, "Succeeded")

    event = await fired(trigger(deferred_at=(datetime.now(UTC) - timedelta(seconds=1e6 + 1)).isoformat()))

    assert event["conclusion"]["outcome"] == "Succeeded"
