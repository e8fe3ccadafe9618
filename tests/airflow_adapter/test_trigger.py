"""Following without a worker: what crosses processes, what is deleted when, and that no line is lost in between."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_adapter.stand_ins import ListLogger, StandInSocketsThatDrain, StandInTaskInstance, context, job_object
from airflow_versions import since
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.airflow.outcome import JobEvent, TriggerFailed
from ptjob_provider.airflow.task_log import cursor_store
from ptjob_provider.airflow.task_log.cursor_store import CURSOR_KEY, FreezeDetector
from ptjob_provider.airflow.task_log.records import RateLimiter
from ptjob_provider.airflow.triggers import PyTorchJobTrigger
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.errors import PermissionDenied, PTJobError
from ptjob_provider.core.identity import OWNER_ANNOTATION, UNFOLLOWED_ANNOTATION
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import Submission

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_adapter.stand_ins import FakeComms
    from fakes import ScriptedBackend

KEY = ("team", "digits")
CANARY = "canary-4711-secret"
EVENT_FIELDS = {"submission", "conclusion", "error", "retryable", "cursor", "knows_place"}


def trigger(**arguments: Any) -> PyTorchJobTrigger:
    """Return a trigger as a triggerer makes it."""
    ours = job_object(annotations={OWNER_ANNOTATION: json.dumps({"instance": "tests", "ids": {}})})
    made = PyTorchJobTrigger(**{"submission": Submission.of(ours).to_dict(), **arguments})
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
    """Let this be the job; without an end rank 0 runs, and its log goes on."""
    backend.jobs[KEY] = job_object("digits", condition)
    backend.worlds = [Observation(job=backend.jobs[KEY], pods=[] if condition else [running_rank0()])]
    backend.log_hangs = condition is None


def running_rank0() -> dict[str, Any]:
    state = {"running": {"startedAt": "2026-11-20T10:00:00Z"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "digits-master-0", "uid": "p", "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {"nodeName": "n", "containers": [{"name": "pytorch"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "pytorch", "restartCount": 0, "state": state}],
        },
    }


async def fired(made: PyTorchJobTrigger) -> dict[str, Any]:
    """Return the payload of the one event."""
    events = [event async for event in made.run()]
    assert len(events) == 1
    payload: dict[str, Any] = json.loads(json.dumps(events[0].payload))
    return payload


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds that nobody tells."""
    for _ in range(1200):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"waited 60 s for {what}")


@contextlib.asynccontextmanager
async def running(made: PyTorchJobTrigger, *, lines: int = 0) -> Any:
    """Run the trigger as far as its log has so many lines."""

    async def exhaust() -> None:
        async for _ in made.run():
            pass

    task = asyncio.create_task(exhaust())
    await until(lambda: len(log_of(made)) >= lines, f"{lines} lines in the log")
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
async def test_a_triggers_row_of_another_version_is_followed(
    backend: ScriptedBackend, comms: FakeComms, row: dict[str, Any]
) -> None:
    """Airflow fails the task of a row that cannot be built from, and nobody would decide about its job."""
    show(backend, "Succeeded")

    told = JobEvent.from_dict(await fired(trigger(**row)))

    assert (told.concluded().outcome, told.submission.ref.uid) == (Outcome.SUCCEEDED, "u-1")


def test_an_event_of_another_version_tells_how_the_job_ended() -> None:
    """The triggerer may be upgraded before the workers, or after them."""
    status = dict.fromkeys(("created_at", "started_at", "finished_at"))
    conclusion = {
        "outcome": "Succeeded",
        "status": {"phase": "Succeeded", "reason": "", "message": "", **status, **MORE},
    }
    rest = {"diagnosis": None, "result": {"phase": "Succeeded"}, "cursor": None, "detail": ""}
    event = {"submission": SUBMITTED, "error": "", "retryable": True, "cursor": None, "knows_place": False}

    for more in ({}, MORE):
        told = JobEvent.from_dict({**event, "conclusion": {**conclusion, **rest, **more}, **more})

        assert told.concluded().result == {"phase": "Succeeded"}


def test_no_value_of_the_environment_is_in_a_triggers_row(backend: ScriptedBackend) -> None:
    """The row is plain text in Airflow's database."""
    from airflow.providers.common.compat.sdk import TaskDeferred  # noqa: PLC0415 - used here only

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

    with pytest.raises(TriggerFailed, match="'gpu_cluster' is unknown to the triggerer") as error:
        JobEvent.from_dict(event).concluded()
    assert error.value.retryable


async def test_an_unexpected_error_is_an_event_that_can_be_retried(backend: ScriptedBackend, comms: FakeComms) -> None:
    """The job was left as it was, and the next try adopts it."""
    show(backend)

    told = JobEvent.from_dict(await fired(trigger(deadline="soon")))

    with pytest.raises(TriggerFailed, match="the trigger failed: ValueError") as error:
        told.concluded()
    assert error.value.retryable
    assert backend.jobs


@pytest.mark.parametrize("event", [None, {}, {"status": "success"}, {"conclusion": None}])
def test_an_event_that_is_not_ours_is_refused(event: dict[str, Any] | None) -> None:
    """A resumed task never takes it for a success."""
    with pytest.raises(PTJobError, match="Unexpected trigger event"):
        JobEvent.from_dict(event)


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("deferred", True),
        (None, True),
        ("up_for_retry", True),
        ("scheduled", True),
        ("queued", True),
        ("running", True),
        ("restarting", True),
        ("none", False),
        ("failed", False),
        ("success", False),
        ("removed", False),
    ],
)
async def test_on_kill_asks_before_it_deletes(
    backend: ScriptedBackend, comms: FakeComms, state: str | None, *, kept: bool
) -> None:
    """A triggerer that was frozen and replaced calls it although the task is deferred, resumed, or in its next try."""
    show(backend)
    comms.state = state

    await trigger().on_kill()

    assert bool(backend.jobs) is kept


@pytest.mark.parametrize(
    ("deferred_at", "kept"),
    [("2026-11-20T11:00:00+00:00", True), (None, True), ("2026-11-20T13:00:00+00:00", False)],
)
async def test_on_kill_keeps_a_job_that_the_last_try_has_left_running_since_the_deferral(
    backend: ScriptedBackend, comms: FakeComms, deferred_at: str | None, *, kept: bool
) -> None:
    """The task has failed because its job could not be followed: a frozen triggerer takes that for a person's word."""
    show(backend)
    backend.jobs[KEY]["metadata"]["annotations"][UNFOLLOWED_ANNOTATION] = "2026-11-20T12:00:00+00:00"
    comms.state = "failed"

    await trigger(deferred_at=deferred_at).on_kill()

    assert bool(backend.jobs) is kept


async def test_a_passing_refusal_is_waited_out_and_told_in_the_tasks_log(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would read it."""
    monkeypatch.setattr("ptjob_provider.core.run.api_errors._PAUSE", (0.01, 0.01))
    show(backend, "Succeeded")
    backend.refusals["watch"] = [PermissionDenied("pods is forbidden (403)", code=403)] * 3
    made = trigger()

    told = JobEvent.from_dict(await fired(made))

    logger: Any = made._log
    assert told.concluded().outcome is Outcome.SUCCEEDED
    assert "pods is forbidden (403). The job is left as it is" in logger.text
    assert "the API server answers again" in logger.text


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
    kept = comms.xcoms[CURSOR_KEY]
    assert (kept["uid"], kept["cursor"], kept["is_last"]) == ("u-1", line(2).cursor.to_dict(), True)


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


async def test_a_triggerer_that_gets_its_trigger_back_tells_again_what_airflow_has_thrown_away(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """It opens a triggerer's part of the log anew, whatever was in it (3.3.2); the parts of others are still there."""
    show(backend)
    backend.lines = [line(1), line(2), line(3)]
    comms.xcoms[CURSOR_KEY] = {"uid": "u-1", "cursor": line(1).cursor.to_dict(), "is_last": True}
    comms.state = "deferred"
    first, again = trigger(), trigger()
    async with running(first, lines=2):
        pass
    await first.cleanup()

    async with running(again, lines=3):
        pass

    mark, *lines = log_of(again)
    assert "may be repeated here: this triggerer had the job before" in mark
    assert lines == ["line 2", "line 3"]


async def test_another_jobs_cursor_is_not_taken(backend: ScriptedBackend, comms: FakeComms) -> None:
    """A new attempt's log is read from its beginning."""
    show(backend, "Succeeded")
    backend.lines = [line(1), line(2)]
    comms.xcoms[CURSOR_KEY] = {"uid": "u-0", "cursor": line(9).cursor.to_dict(), "is_last": True}
    made = trigger()

    await fired(made)

    assert log_of(made) == ["line 1", "line 2"]


async def test_a_life_is_on_record_before_its_first_line(backend: ScriptedBackend, comms: FakeComms) -> None:
    """So that a later life knows that this one was killed."""
    show(backend)
    backend.lines = [line(1)]
    records: list[int] = []
    made = trigger()
    logger: Any = made._log
    logger.on_record = lambda: records.append(len(comms.history))

    async with running(made, lines=1):
        pass

    [(_, kept)] = comms.history
    assert (kept["uid"], kept["cursor"], kept["is_last"]) == ("u-1", None, False)
    assert records[-1] == 1


async def test_a_life_after_an_orderly_end_is_on_record_with_the_place_that_it_found(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """Killed before it wrote a line, it leaves what the earlier life had kept."""
    show(backend)
    backend.lines = [line(1), line(2), line(3)]
    comms.xcoms[CURSOR_KEY] = {"uid": "u-1", "cursor": line(2).cursor.to_dict(), "is_last": True}

    async with running(trigger(), lines=1):
        pass

    [(_, kept)] = comms.history
    assert (kept["cursor"], kept["is_last"]) == (line(2).cursor.to_dict(), False)


@since(3, 3, "`on_kill` of triggers: `cleanup` asks nothing")
async def test_a_job_that_waits_asks_and_writes_nothing(backend: ScriptedBackend, comms: FakeComms) -> None:
    """Ten thousand of them wait in queues, and one process answers all questions."""
    show(backend)
    backend.worlds = [Observation(job=backend.jobs[KEY])]
    backend.lines = [line(1)]
    made = trigger()

    async with running(made):
        await until(lambda: backend.shown > 0, "the trigger to watch its job")
        await asyncio.sleep(0.2)
    await made.cleanup()

    assert (comms.questions, comms.history) == ([], [])


async def test_a_trigger_that_waits_owns_no_task_but_the_runners(backend: ScriptedBackend, comms: FakeComms) -> None:
    """Whatever keeps its place in the log begins with the log."""
    show(backend)
    backend.worlds = [Observation(job=backend.jobs[KEY])]
    async with running(trigger()):
        await until(lambda: len(backend.waiting) == 1, "the trigger to wait for its job")
        before = len(asyncio.all_tasks())

        async with running(trigger()):
            await until(lambda: len(backend.waiting) == 2, "the second trigger to wait for its job")
            more = len(asyncio.all_tasks()) - before

    assert more <= 2  # Airflow's own, and the runner's look at the watch


async def test_a_place_is_written_again_only_when_it_has_moved(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that says nothing for hours costs nothing."""
    monkeypatch.setattr(cursor_store, "SAVE_INTERVAL", 0.1)  # half a minute would show nothing more
    monkeypatch.setattr(cursor_store, "PAUSE", 0.02)
    show(backend)
    backend.lines = [line(1), line(2)]

    async with running(trigger(), lines=2):
        await until(lambda: len(comms.history) >= 2, "the place to be written")
        await asyncio.sleep(0.5)

    assert [value["cursor"] for _, value in comms.history] == [None, line(2).cursor.to_dict()]


@since(3, 3, "`on_kill` of triggers: `cleanup` asks nothing")
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


def test_a_triggerer_that_stops_before_airflow_has_fetched_the_event_keeps_the_place(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """The next one runs the trigger again, and repeats no line."""
    show(backend, "Succeeded")
    backend.lines = [line(1), line(2)]
    made = trigger()

    async def fire_and_stop() -> None:
        await fired(made)
        await made.cleanup()

    asyncio.run(fire_and_stop())

    kept = comms.xcoms[CURSOR_KEY]
    assert (kept["cursor"], kept["is_last"]) == (line(2).cursor.to_dict(), True)


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


async def test_an_event_says_whether_its_place_in_the_log_is_known(backend: ScriptedBackend, comms: FakeComms) -> None:
    """A job that never had a log was not asked for; the resumed task looks itself."""
    backend.worlds = [Observation(job=None)]
    never_read = await fired(trigger())
    show(backend, "Succeeded")
    backend.shown = 0
    read = await fired(trigger())

    assert (never_read["knows_place"], read["knows_place"]) == (False, True)


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


async def test_the_place_in_another_jobs_log_is_none_that_was_told_before(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """A try that ended left it, and the task goes on with the next job."""
    show(backend)
    backend.lines = [line(1), line(2)]
    comms.xcoms[CURSOR_KEY] = {"uid": "u-0", "cursor": line(1).cursor.to_dict(), "is_last": True}
    made = trigger(deferred_at=datetime.now(UTC).isoformat())

    async with running(made, lines=2):
        await until(lambda: comms.xcoms[CURSOR_KEY]["uid"] == "u-1", "this trigger on record")

    assert log_of(made) == ["line 1", "line 2"]


async def test_after_a_kill_before_anything_was_on_record_repeated_lines_are_in_a_marked_block(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """The first life told of the log at once; it was killed before Airflow had answered it."""
    show(backend, "Succeeded")
    backend.lines = [line(1), line(2)]
    made = trigger(deferred_at="2026-11-20T09:59:58+00:00")

    await fired(made)

    mark, *lines = log_of(made)
    assert "may be repeated here: a reader that was killed early" in mark
    assert lines == ["line 1", "line 2"]


async def test_a_log_that_began_long_after_the_deferral_has_no_reader_that_is_not_on_record(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """A job that waited in a queue while its triggerer was replaced; nothing is marked."""
    show(backend, "Succeeded")
    backend.lines = [line(1), line(2)]
    made = trigger(deferred_at="2026-11-20T09:00:00+00:00")

    await fired(made)

    assert log_of(made) == ["line 1", "line 2"]


async def test_an_event_waits_for_its_log_as_long_as_some_of_it_leaves(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow drops what is on its way when the event comes, and a slow triggerer takes long to read it."""
    sockets = StandInSocketsThatDrain(5)
    limiter = RateLimiter(1000, sockets)
    monkeypatch.setattr("ptjob_provider.airflow.triggers.rate_limiters", SimpleNamespace(get=lambda: limiter))
    monkeypatch.setattr("ptjob_provider.airflow.triggers._ARRIVAL", 0.01)  # seconds would show nothing more
    show(backend, "Succeeded")

    await fired(trigger())

    assert sockets.is_empty()


async def test_a_short_deferral_is_not_ended_before_the_workers_own_end(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow fails a task that is queued again before the end of its worker was seen, which takes it up to 5 s.

    The worker has more to do after it has deferred: a trigger that is picked up late waits no less.
    """
    monkeypatch.setattr("ptjob_provider.airflow.triggers.SHORTEST", 1.0)  # seven seconds would show nothing more
    show(backend, "Succeeded")
    deferred_at, began = datetime.now(UTC) - timedelta(seconds=0.8), time.monotonic()

    await fired(trigger(deferred_at=deferred_at.isoformat()))

    assert time.monotonic() - began >= 1.0


async def test_a_trigger_that_another_triggerer_takes_over_later_waits_for_no_worker(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one has long ended."""
    monkeypatch.setattr("ptjob_provider.airflow.triggers.SHORTEST", 1e6)  # the test would never end
    show(backend, "Succeeded")

    event = await fired(trigger(deferred_at=(datetime.now(UTC) - timedelta(seconds=1e6 + 1)).isoformat()))

    assert event["conclusion"]["outcome"] == "Succeeded"


async def test_an_answer_that_takes_long_is_no_standstill(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow may take longer to keep the cursor than a standstill lasts; this process lives all the same.

    The detector's clock goes on with the event loop, a hundred times as fast: a machine that stands still stops both.
    """
    now = [0.0]
    monkeypatch.setattr(cursor_store, "FreezeDetector", lambda: FreezeDetector(lambda: now[0]))
    monkeypatch.setattr(cursor_store, "CHECK_INTERVAL", 0.05)
    show(backend)
    backend.lines = [line(number) for number in range(20)]
    backend.seconds_between_lines = 0.1
    comms.hangs = True
    made = trigger(deferred_at=datetime.now(UTC).isoformat())

    async def go_on() -> None:
        while True:
            await asyncio.sleep(0.01)
            now[0] += 1.0

    clock = asyncio.create_task(go_on())
    async with running(made, lines=20):
        pass
    clock.cancel()

    assert now[0] > cursor_store.FROZEN_AFTER
    assert log_of(made) == [f"line {number}" for number in range(20)]


async def test_a_triggerer_that_was_frozen_leaves_the_cursor_to_whoever_went_on(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it knows is older, and the heir's lines would be repeated without a mark."""
    now = [0.0]
    monkeypatch.setattr(cursor_store, "FreezeDetector", lambda: FreezeDetector(lambda: now[0]))
    monkeypatch.setattr(cursor_store, "SAVE_INTERVAL", 0.5)
    monkeypatch.setattr(cursor_store, "PAUSE", 0.02)
    show(backend)
    backend.lines = [line(number) for number in range(1, 40)]
    backend.seconds_between_lines = 0.1

    async with running(trigger(), lines=2):
        writes = len(comms.history)
        now[0], woke_at = 60.0, time.monotonic()
        await until(lambda: len(comms.history) > writes, "another write, when nobody has taken the trigger over")

    assert comms.written_at[writes] - woke_at >= 0.5


async def test_a_triggerer_that_stops_right_after_it_was_frozen_leaves_the_cursor_as_well(
    backend: ScriptedBackend, comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end may come before Airflow tells it that another has its triggers."""
    now = [0.0]
    monkeypatch.setattr(cursor_store, "FreezeDetector", lambda: FreezeDetector(lambda: now[0]))
    show(backend)
    backend.lines = [line(1)]
    made = trigger()

    async with running(made, lines=1):
        now[0] = 60.0
        heirs = comms.xcoms[CURSOR_KEY] = {"uid": "u-1", "cursor": line(9).cursor.to_dict(), "is_last": False}
        await made.cleanup()

    assert comms.xcoms[CURSOR_KEY] == heirs


async def test_two_triggers_of_one_job_both_tell_its_end_and_harm_nothing(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """Airflow runs one in two triggerers now and then (apache/airflow#37180)."""
    show(backend)
    backend.lines = [line(number) for number in range(1, 6)]
    first, second = trigger(), trigger()
    told = [asyncio.create_task(fired(each)) for each in (first, second)]
    await until(lambda: len(log_of(first)) >= 5 and len(log_of(second)) >= 5, "five lines in both logs")

    backend.end(Observation(job=job_object("digits", "Succeeded")))
    payloads = await asyncio.gather(*told)
    for each in (first, second):
        await each.cleanup()

    assert [JobEvent.from_dict(each).concluded().outcome for each in payloads] == [Outcome.SUCCEEDED] * 2
    assert [JobEvent.from_dict(each).cursor for each in payloads] == [line(5).cursor] * 2
    assert (backend.deleted, set(backend.jobs)) == ([], {KEY})
    assert {value["uid"] for _, value in comms.history} == {"u-1"}
    assert all(value["is_last"] is False for _, value in comms.history)


async def test_of_two_triggers_the_one_that_is_told_to_stop_leaves_the_other_its_job(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """Nor does it take the other's place in the log back."""
    show(backend)
    backend.lines = [line(number) for number in range(1, 4)]
    comms.state = "deferred"
    first, second = trigger(), trigger()
    async with running(first, lines=3), running(second, lines=3):
        later = comms.xcoms[CURSOR_KEY] = {"uid": "u-1", "cursor": line(9).cursor.to_dict(), "is_last": False}

        await first.on_kill()
        await first.cleanup()
        kept = comms.xcoms[CURSOR_KEY]

    assert backend.jobs
    assert kept == later
