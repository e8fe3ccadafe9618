"""Following without a worker: what crosses processes, what is deleted when, and that no line is lost in between."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from airflow_adapter.stand_ins import ListLogger, StandInTaskInstance, context, job_object
from ptjob_provider.airflow import pulse, triggers
from ptjob_provider.airflow.event import JobEvent, TriggerFailed
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.airflow.triggers import CURSOR_KEY, PyTorchJobTrigger
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.conclusion import Outcome
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.submission import Submission

if TYPE_CHECKING:
    from airflow_adapter.stand_ins import FakeComms
    from fakes import ScriptedBackend

KEY = ("team", "digits")
CANARY = "canary-4711-secret"
EVENT_FIELDS = {"submission", "conclusion", "error", "retryable", "cursor"}


def trigger(**arguments: Any) -> PyTorchJobTrigger:
    """Return a trigger as a triggerer makes it."""
    made = PyTorchJobTrigger(**{"submission": Submission.of(job_object()).to_dict(), **arguments})
    made.task_instance = StandInTaskInstance()
    made._log = ListLogger()
    return made


def log_of(made: PyTorchJobTrigger) -> list[str]:
    logger: Any = made._log
    return [line for line in logger.text.split("\n") if line.startswith(("line", "──"))]


def line(number: int) -> LogLine:
    at = f"2026-11-20T10:00:{number:02d}Z"
    cursor = LogCursor(pod_uid="p", container="pytorch", restart_count=0, timestamp=at, ordinal=number)
    return LogLine(text=f"line {number}", timestamp=at, cursor=cursor)


def show(backend: ScriptedBackend, condition: str | None = None) -> None:
    """Let this be the job; without an end its log goes on, too."""
    backend.jobs[KEY] = job_object("digits", condition)
    backend.worlds = [Observation(job=backend.jobs[KEY])]
    backend.log_hangs = condition is None


async def fired(made: PyTorchJobTrigger) -> dict[str, Any]:
    """Return the payload of the one event."""
    events = [event async for event in made.run()]
    assert len(events) == 1
    payload: dict[str, Any] = json.loads(json.dumps(events[0].payload))
    return payload


@contextlib.asynccontextmanager
async def running(made: PyTorchJobTrigger, *, lines: int = 0) -> Any:
    """Run the trigger as far as its log has so many lines."""

    async def exhaust() -> None:
        async for _ in made.run():
            pass

    task = asyncio.create_task(exhaust())
    async with asyncio.timeout(10):
        while len(log_of(made)) < lines:  # noqa: ASYNC110 - a logger tells nobody
            await asyncio.sleep(0.05)
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_another_triggerer_builds_the_same_trigger() -> None:
    """From JSON alone."""
    made = trigger(deadline="2026-11-20T10:00:00+00:00", limits={"start_timeout": 5}, hands_off=True)

    path, fields = made.serialize()
    again = PyTorchJobTrigger(**json.loads(json.dumps(fields)))

    assert path == "ptjob_provider.airflow.triggers.PyTorchJobTrigger"
    assert again.serialize() == (path, fields)
    assert Submission.from_dict(again.submission).ref.name == "digits"


def test_no_value_of_the_environment_is_in_a_triggers_row(backend: ScriptedBackend) -> None:
    """The row is plain text in Airflow's database."""
    from airflow.sdk.exceptions import TaskDeferred  # noqa: PLC0415 - used here only

    task = PyTorchJobOperator(task_id="t", image="digits", env={"TOKEN": CANARY}, args=[CANARY], deferrable=True)

    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context())

    assert CANARY in json.dumps(list(backend.jobs.values()))
    assert CANARY not in json.dumps(deferred.value.trigger.serialize())


@pytest.mark.parametrize(("condition", "outcome"), [("Succeeded", Outcome.SUCCEEDED), ("Failed", Outcome.FAILED)])
async def test_the_event_tells_how_the_job_ended(
    backend: ScriptedBackend, comms: FakeComms, condition: str, outcome: Outcome
) -> None:
    """With the last line that the log has, and readable by a process that knows nothing else."""
    show(backend, condition)
    backend.lines = [line(1), line(2)]
    made = trigger()

    told = JobEvent.from_dict(await fired(made))

    assert told.concluded().outcome is outcome
    assert (told.submission.ref.uid, told.cursor) == ("u-1", line(2).cursor)
    assert log_of(made) == ["line 1", "line 2"]


async def test_a_deleted_job_is_told_as_deleted(backend: ScriptedBackend, comms: FakeComms) -> None:
    """Not as an error of the trigger."""
    backend.worlds = [Observation(job=None)]

    assert JobEvent.from_dict(await fired(trigger())).concluded().outcome is Outcome.DELETED


async def test_a_deadline_deletes_the_job_before_the_event(backend: ScriptedBackend, comms: FakeComms) -> None:
    """`execution_timeout` holds while deferred."""
    show(backend)
    backend.log_hangs = False

    told = JobEvent.from_dict(await fired(trigger(deadline="2026-11-20T10:00:00+00:00")))

    assert told.concluded().outcome is Outcome.TIMED_OUT
    assert not backend.jobs


async def test_an_error_of_ours_is_an_event_that_is_not_retried(
    monkeypatch: pytest.MonkeyPatch, comms: FakeComms
) -> None:
    """There is no such back-end: the resumed task raises that."""
    monkeypatch.setenv("AIRFLOW__PTJOB__BACKEND", "elsewhere")

    event = await fired(trigger())

    assert event.keys() == EVENT_FIELDS
    with pytest.raises(TriggerFailed, match=r"\[ptjob\] backend") as error:
        JobEvent.from_dict(event).concluded()
    assert not error.value.retryable


async def test_a_connection_that_the_triggerer_does_not_know_is_an_event(comms: FakeComms) -> None:
    """The resumed task says where to define it; the job goes on for the next try."""
    event = await fired(trigger(kubernetes_conn_id="gpu_cluster"))

    with pytest.raises(TriggerFailed, match="'gpu_cluster' is not known to the triggerer") as error:
        JobEvent.from_dict(event).concluded()
    assert error.value.retryable


async def test_an_unexpected_error_is_an_event_that_can_be_retried(backend: ScriptedBackend, comms: FakeComms) -> None:
    """The job was left as it was, and the next try adopts it."""
    show(backend)

    told = JobEvent.from_dict(await fired(trigger(limits={"unknown": 1})))

    with pytest.raises(TriggerFailed, match="the trigger failed: TypeError") as error:
        told.concluded()
    assert error.value.retryable
    assert backend.jobs


@pytest.mark.parametrize("event", [None, {}, {"status": "success"}, {"conclusion": None}])
def test_an_event_that_is_not_ours_is_refused(event: dict[str, Any] | None) -> None:
    """A resumed task never takes it for a success."""
    with pytest.raises(PTJobError, match="no event of PyTorchJobTrigger"):
        JobEvent.from_dict(event)


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("deferred", True),
        (None, True),
        ("up_for_retry", True),
        ("failed", False),
        ("success", False),
        ("removed", False),
    ],
)
async def test_on_kill_asks_before_it_deletes(
    backend: ScriptedBackend, comms: FakeComms, state: str | None, *, kept: bool
) -> None:
    """A triggerer that was frozen and replaced calls it although the task is still deferred."""
    show(backend)
    comms.state = state

    await trigger().on_kill()

    assert bool(backend.jobs) is kept


async def test_on_kill_without_an_api_server_keeps_the_job(backend: ScriptedBackend, comms: FakeComms) -> None:
    """Nothing is deleted on a guess."""
    show(backend)
    comms.refuses = True

    await trigger().on_kill()

    assert backend.jobs


async def test_on_kill_after_the_event_does_nothing(backend: ScriptedBackend, comms: FakeComms) -> None:
    """The task is resumed and decides itself."""
    show(backend, "Succeeded")
    comms.state = "failed"
    made = trigger()
    await fired(made)

    await made.on_kill()

    assert backend.deleted == []


async def test_on_kill_keeps_its_hands_off_somebody_elses_job(backend: ScriptedBackend, comms: FakeComms) -> None:
    """A sensor that is marked failed stops nobody's training."""
    show(backend)
    comms.state = "failed"

    await trigger(hands_off=True).on_kill()

    assert backend.jobs


@pytest.mark.parametrize("condition", ["Succeeded", "Failed"])
async def test_on_kill_leaves_a_finished_job(backend: ScriptedBackend, comms: FakeComms, condition: str) -> None:
    """There is nothing to stop, and its story may be wanted."""
    show(backend, condition)
    comms.state = "failed"

    await trigger().on_kill()

    assert backend.jobs


async def test_on_kill_leaves_a_job_that_has_the_name_now(backend: ScriptedBackend, comms: FakeComms) -> None:
    """The uid decides."""
    show(backend)
    backend.jobs[KEY]["metadata"]["uid"] = "u-2"
    comms.state = "failed"

    await trigger().on_kill()

    assert backend.jobs


async def test_a_triggerer_that_stops_leaves_the_job_and_keeps_the_cursor(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """`cleanup` also runs on a restart."""
    show(backend)
    backend.lines = [line(1), line(2)]
    made = trigger()
    async with running(made, lines=2):
        pass

    await made.cleanup()

    assert backend.jobs
    assert comms.xcoms[CURSOR_KEY] == {"uid": "u-1", "cursor": line(2).cursor.to_dict(), "is_last": True}


async def test_the_next_life_goes_on_after_the_last_line(backend: ScriptedBackend, comms: FakeComms) -> None:
    """Every line once, and no mark where the earlier life ended in order."""
    show(backend, "Succeeded")
    backend.lines = [line(1), line(2), line(3)]
    comms.xcoms[CURSOR_KEY] = {"uid": "u-1", "cursor": line(2).cursor.to_dict(), "is_last": True}
    made = trigger()

    await fired(made)

    assert log_of(made) == ["line 3"]


async def test_after_a_kill_repeated_lines_are_in_a_marked_block(backend: ScriptedBackend, comms: FakeComms) -> None:
    """They may be repeated from the last kept cursor on, never silently missing."""
    show(backend, "Succeeded")
    backend.lines = [line(1), line(2), line(3)]
    comms.xcoms[CURSOR_KEY] = {"uid": "u-1", "cursor": line(1).cursor.to_dict(), "is_last": False}
    made = trigger()

    await fired(made)

    mark, *lines = log_of(made)
    assert "may be repeated here: their last reader was killed" in mark
    assert lines == ["line 2", "line 3"]


async def test_another_jobs_cursor_is_not_taken(backend: ScriptedBackend, comms: FakeComms) -> None:
    """A new attempt's log is read from its beginning."""
    show(backend, "Succeeded")
    backend.lines = [line(1), line(2)]
    comms.xcoms[CURSOR_KEY] = {"uid": "u-0", "cursor": line(9).cursor.to_dict(), "is_last": True}
    made = trigger()

    await fired(made)

    assert log_of(made) == ["line 1", "line 2"]


async def test_a_running_trigger_is_on_record_from_its_start(backend: ScriptedBackend, comms: FakeComms) -> None:
    """So that a later life knows that this one was killed."""
    show(backend)
    backend.lines = [line(1)]

    async with running(trigger(), lines=1):
        pass

    assert comms.history[0] == (CURSOR_KEY, {"uid": "u-1", "cursor": None, "is_last": False})


async def test_cleanup_does_not_wait_for_an_answer_that_never_comes(backend: ScriptedBackend, comms: FakeComms) -> None:
    """Nobody reads answers any more while a triggerer stops; it would be killed after 30 s."""
    show(backend)
    backend.lines = [line(1)]
    made = trigger()
    async with running(made, lines=1):
        pass
    comms.hangs = True

    async with asyncio.timeout(5):
        await made.cleanup()


async def test_cleanup_after_the_event_writes_nothing(backend: ScriptedBackend, comms: FakeComms) -> None:
    """The event has the cursor, and the task may be resumed by now."""
    show(backend, "Succeeded")
    made = trigger()
    await fired(made)
    before = len(comms.history)

    await made.cleanup()

    assert len(comms.history) == before


async def test_cleanup_after_on_kill_leaves_the_cursor_to_whoever_has_the_job(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """A triggerer that was frozen and replaced knows less than the one that took over."""
    show(backend)
    backend.lines = [line(1)]
    comms.state = "deferred"
    made = trigger()
    async with running(made, lines=1):
        pass
    await made.on_kill()
    comms.xcoms[CURSOR_KEY] = {"uid": "u-1", "cursor": line(9).cursor.to_dict(), "is_last": False}

    await made.cleanup()

    assert comms.xcoms[CURSOR_KEY]["cursor"] == line(9).cursor.to_dict()


async def test_a_place_in_the_log_that_airflow_does_not_tell_costs_repeated_lines_only(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """The job is followed all the same, and the log says that it may repeat itself."""
    show(backend, "Succeeded")
    backend.lines = [line(1), line(2)]
    comms.refuses = True
    made = trigger()

    payload = await fired(made)

    mark, *lines = log_of(made)
    assert payload["conclusion"]["outcome"] == Outcome.SUCCEEDED
    assert "may be repeated here" in mark
    assert lines == ["line 1", "line 2"]


async def test_a_trigger_that_was_just_made_does_not_wait_for_airflows_answer(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """A fresh triggerer's API takes seconds to answer the first question; the log is live meanwhile."""
    show(backend)
    backend.lines = [line(1)]
    comms.hangs = True
    made = trigger(deferred_at=datetime.now(UTC).isoformat())

    async with running(made, lines=1):
        pass

    assert log_of(made) == ["line 1"]


async def test_a_trigger_that_wrongly_took_itself_for_the_first_owns_up(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """Lines that an earlier triggerer had told are in the log twice, and the log says up to where."""
    show(backend)
    backend.lines = [line(1), line(2)]
    comms.xcoms[CURSOR_KEY] = {"uid": "u-1", "cursor": line(1).cursor.to_dict(), "is_last": True}
    made = trigger(deferred_at=datetime.now(UTC).isoformat())

    async with running(made, lines=3):
        pass

    assert sorted(log_of(made))[:2] == ["line 1", "line 2"]
    assert any("up to 2026-11-20T10:00:01Z are repeated above" in text for text in log_of(made))


async def test_a_short_deferral_is_not_ended_before_the_workers_own_end(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow fails a task that is queued again before the end of its worker was seen, which takes it up to 5 s."""
    monkeypatch.setattr("ptjob_provider.airflow.triggers.SHORTEST", 1.0)  # seven seconds would show nothing more
    show(backend, "Succeeded")
    deferred_at = datetime.now(UTC)

    await fired(trigger(deferred_at=deferred_at.isoformat()))

    assert (datetime.now(UTC) - deferred_at).total_seconds() >= 1.0


async def test_an_answer_that_takes_long_is_no_standstill(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow may take longer to keep the cursor than a standstill lasts; this process lives all the same."""
    monkeypatch.setattr(pulse, "BEAT", 0.05)
    monkeypatch.setattr(pulse, "STANDSTILL", 0.5)
    show(backend)
    backend.lines = [line(number) for number in range(20)]
    backend.seconds_between_lines = 0.1
    comms.hangs = True
    made = trigger(deferred_at=datetime.now(UTC).isoformat())

    async with running(made, lines=20):
        pass

    assert log_of(made) == [f"line {number}" for number in range(20)]


async def test_a_triggerer_that_was_frozen_leaves_the_cursor_to_whoever_went_on(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it knows is older, and the heir's lines would be repeated without a mark."""
    now = [0.0]
    monkeypatch.setattr(triggers, "Pulse", lambda: pulse.Pulse(lambda: now[0]))
    monkeypatch.setattr(triggers, "KEEP_INTERVAL", 0.1)
    show(backend)
    backend.lines = [line(1)]

    async with running(trigger(), lines=1):
        writes = len(comms.history)
        now[0] = 60.0
        heirs = comms.xcoms[CURSOR_KEY] = {"uid": "u-1", "cursor": line(9).cursor.to_dict(), "is_last": False}
        await asyncio.sleep(0.15)
        kept = comms.xcoms[CURSOR_KEY]
        await asyncio.sleep(0.3)

    assert kept == heirs
    assert len(comms.history) > writes
