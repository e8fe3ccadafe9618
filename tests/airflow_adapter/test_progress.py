"""Tests of the XCom `progress`: when it is written, what it has, and how a later trigger goes on from it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, TaskDeferred

from airflow_adapter.stand_ins import (
    OWNED,
    SOON,
    StandInTaskInstance,
    context,
    event_of,
    job_object,
    operator,
    pod_object,
    submitted,
    trigger_of,
    until,
)
from airflow_adapter.stand_ins import log_line as line
from airflow_adapter.test_trigger import RUNS, fired, running, show
from fakes import finished
from ptjob_provider.airflow import supervisor
from ptjob_provider.airflow.outcome import JobEvent
from ptjob_provider.airflow.sensors import PyTorchJobSensor
from ptjob_provider.airflow.supervisor import TaskStateAttemptStore
from ptjob_provider.airflow.task_log import progress_store
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import conclude_attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_adapter.stand_ins import FakeComms
    from fakes import ScriptedBackend


pytestmark = pytest.mark.usefixtures("comms")


def trains(backend: ScriptedBackend, condition: str | None = None, *, steps: int = 3) -> None:
    """Set the job and its log: a line for each step."""
    show(backend, condition)
    backend.lines = [line(step, f"step {step}/45 loss={1 / step:.3f}") for step in range(1, steps + 1)]


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_store, "SAVE_INTERVAL", 0.1)  # 30 s in production
    monkeypatch.setattr(progress_store, "PAUSE", 0.02)


@pytest.mark.usefixtures("_soon")
async def test_a_trigger_writes_how_far_the_training_is_and_its_place_in_the_log(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    """A job that stands still costs no further write."""
    trains(backend)
    made = trigger_of(job_object(annotations=OWNED))

    async with running(made):
        await until(lambda: comms.xcoms.get("progress", {}).get("step") == 3, "the last step")
        await asyncio.sleep(0.5)

    told, writes = comms.xcoms["progress"], [key for key, _ in comms.history]
    assert (set(writes), len(writes) <= 3) == ({"progress"}, True)
    assert told["cursor"] == line(3).cursor.to_dict()
    assert told.items() >= {"uid": "u-1", "attempt": 1, "total": 45, "first_step": 1, "source": "line"}.items()
    assert told["curve"]["metrics"] == {"loss": [1.0, 0.5, 0.333]}
    assert told["replicas"][0]["phase"] == "Running"


async def test_a_trigger_goes_on_with_the_curve_that_an_earlier_one_has_stored(backend: ScriptedBackend) -> None:
    trains(backend)
    first = trigger_of(job_object(annotations=OWNED))
    async with running(first):
        await until(lambda: "step 3/45" in first._log.text, "the last line")  # type: ignore[attr-defined]
    await first.cleanup()
    show(backend, "Succeeded")
    backend.lines = [line(step, f"step {step}/45 loss={1 / step:.3f}") for step in range(2, 6)]
    backend.shown = 0

    told = JobEvent.from_dict(await fired(trigger_of(job_object(annotations=OWNED)))).required_outcome().progress

    assert (told["first_step"], told["step"], told["curve"]["step"]) == (1, 5, [1, 2, 3, 4, 5])


def ended(backend: ScriptedBackend, condition: str, given: dict[str, Any], **arguments: Any) -> StandInTaskInstance:
    """Run a task in a worker whose job ends like this, with three lines in its log."""
    submitted(backend, given, **arguments)
    key = list(backend.jobs)[-1]
    name = backend.jobs[key]["metadata"]["name"]
    running_job = {**backend.jobs[key], "status": job_object(condition=None)["status"]}
    backend.jobs[key] = finished(backend.jobs[key], condition)
    backend.worlds = [
        Observation(job=running_job, pods=[pod_object(f"{name}-master-0", RUNS, "Running")]),
        Observation(job=backend.jobs[key]),
    ]
    backend.lines = [line(step, f"step {step}/45 loss={1 / step:.3f}") for step in range(1, 4)]
    try:
        operator(**arguments).execute(given)
    except AirflowException:
        assert condition == "Failed"
    return given["ti"]


@pytest.mark.parametrize("condition", ["Succeeded", "Failed"])
def test_a_worker_pushes_the_last_state_however_the_job_ends(backend: ScriptedBackend, condition: str) -> None:
    pushed = ended(backend, condition, context()).pushed["progress"]

    assert (pushed["phase"], pushed["step"], pushed["curve"]["step"]) == (condition, 3, [1, 2, 3])
    assert pushed["cursor"] == line(3).cursor.to_dict()


def test_a_pattern_of_the_task_says_what_is_a_step(backend: ScriptedBackend) -> None:
    """For a worker and, as an argument, for the trigger."""
    given = context()
    made = operator(progress=r"loss=(?P<loss>[\d.]+)", deferrable=True)
    backend.worlds = [Observation(job=None)]
    with pytest.raises(TaskDeferred) as deferred:
        made.execute(context())

    pushed = ended(backend, "Succeeded", given, progress=r"step (?P<epoch>\d+)").pushed["progress"]

    assert (pushed["epoch"], pushed["step"]) == (3.0, None)
    assert deferred.value.trigger.serialize()[1]["progress"] == r"loss=(?P<loss>[\d.]+)"


async def test_a_resumed_task_pushes_the_state_of_the_event(backend: ScriptedBackend) -> None:
    """Also if the job has failed."""
    trains(backend, "Failed")
    event = await fired(trigger_of(job_object(annotations=OWNED)))
    given = context()

    with pytest.raises(AirflowException):
        await asyncio.to_thread(operator().execute_complete, given, event)

    pushed = given["ti"].pushed["progress"]
    assert (pushed["phase"], pushed["step"], pushed["uid"]) == ("Failed", 3, "u-1")


def test_a_task_that_begins_to_wait_tells_how_earlier_attempts_ended(backend: ScriptedBackend) -> None:
    """Airflow has deleted the XComs of the earlier try. No trigger has begun to write the log yet."""
    given = context()
    submitted(backend, given)
    conclude_attempt(TaskStateAttemptStore(given), {"attempt": 1, "cause": "node_lost"})
    given["ti"].pushed.clear()
    backend.worlds = [Observation(job=None)]

    with pytest.raises(TaskDeferred):
        operator(deferrable=True).execute(given)

    told = given["ti"].pushed["progress"]
    assert (told["attempt"], told["phase"], told["attempts"]) == (2, "Pending", [{"attempt": 1, "cause": "node_lost"}])
    assert "cursor" not in told


async def test_lines_are_not_called_repeated_if_only_the_worker_has_written_progress(
    backend: ScriptedBackend, comms: FakeComms
) -> None:
    show(backend, lines=1)
    comms.xcoms["progress"] = {"uid": "u-1", "phase": "Pending", "attempts": []}
    made = trigger_of(job_object(annotations=OWNED))

    async with running(made, lines=1):
        pass

    assert "repeated" not in made._log.text  # type: ignore[attr-defined]


class TaskInstanceThatCounts(StandInTaskInstance):
    """Keeps every XCom that was pushed, and the thread that pushed it."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[str, Any, threading.Thread]] = []
        self.when_written: Callable[[Any], None] = lambda _: None

    def xcom_push(self, key: str, value: Any) -> None:
        """Store an XCom."""
        super().xcom_push(key, value)
        self.history.append((key, value, threading.current_thread()))
        self.when_written(value if key == "progress" else {})


@pytest.mark.usefixtures("_soon")
def test_a_worker_that_waits_writes_progress_in_another_thread(backend: ScriptedBackend) -> None:
    """A request that hangs must not keep the worker from stopping its job."""
    ti = TaskInstanceThatCounts()
    given = context(ti)
    submitted(backend, given)
    trains(backend)
    key = next(iter(backend.jobs))
    found = {**backend.jobs[key], "status": job_object()["status"]}
    backend.worlds = [Observation(job=found, pods=[pod_object(f"{key[1]}-master-0", RUNS, "Running")])]
    made, is_written = operator(), threading.Event()
    ti.when_written = lambda value: is_written.set() if value.get("step") == 3 else None
    killer = threading.Thread(target=lambda: (is_written.wait(SOON), made.on_kill()))
    killer.start()

    with pytest.raises(AirflowException, match="told to stop"):
        made.execute(given)
    is_written.set()
    killer.join()

    first, *beside = [(value, thread) for key, value, thread in ti.history if key == "progress"]
    assert (first[0]["phase"], first[1]) == ("Pending", threading.main_thread())
    assert [value["cursor"] for value, _ in beside][-1:] == [line(3).cursor.to_dict()]
    assert threading.main_thread() not in [thread for _, thread in beside]


async def test_a_task_goes_on_after_the_last_write_of_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow 3.1 would give the next request its response."""
    monkeypatch.setattr(supervisor, "TRIGGER_PATIENCE", 0.05)
    released, order = threading.Event(), list[str]()

    class Slow(StandInTaskInstance):
        def xcom_push(self, key: str, value: Any) -> None:
            released.wait(SOON)
            order.append(key)

    with pytest.raises(TimeoutError):
        await supervisor.push_xcom(Slow(), "progress", {})
    monkeypatch.setattr(supervisor, "TRIGGER_PATIENCE", SOON)
    await supervisor.push_xcom(Slow(), "another", {})
    threading.Timer(0.1, released.set).start()

    await asyncio.to_thread(supervisor.settle)

    assert order == ["progress"]


def test_a_sensor_pushes_the_progress_of_the_job_that_it_waits_for(backend: ScriptedBackend) -> None:
    """See test_dag_runs.py for one that has deferred."""
    trains(backend, "Succeeded")
    given = context()

    PyTorchJobSensor(task_id="see", job_name="digits", namespace="team", deferrable=False).poke(given)

    assert (given["ti"].pushed["progress"]["step"], given["ti"].pushed["progress"]["phase"]) == (3, "Succeeded")


def test_an_event_of_an_older_version_pushes_no_progress(backend: ScriptedBackend) -> None:
    given = context()
    submission = submitted(backend, given)
    event = event_of(submission, Outcome.SUCCEEDED, result={"attempt": 1, "usage": None})
    del event["conclusion"]["progress"]
    given["ti"].pushed.clear()

    operator().execute_complete(given, event)

    assert "progress" not in given["ti"].pushed
