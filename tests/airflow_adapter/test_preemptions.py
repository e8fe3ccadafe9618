"""Tests of a task whose job the platform ends: the same try makes the next attempt, in the worker and deferred."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout, TaskDeferred

from airflow_adapter.stand_ins import ListLogger, StandInTaskInstance, context, operator, until
from airflow_versions import HAS_TASK_STORE, since
from preempting import Killed, Life, MortalBackend, PreemptingStandIn
from ptjob_provider.airflow.outcome import TaskStopped
from ptjob_provider.core.run import preemptions
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_adapter.stand_ins import FakeComms
    from ptjob_provider.airflow.triggers import PyTorchJobTrigger

pytestmark = pytest.mark.usefixtures("comms")

FIRST, COUNT = (int(os.environ.get(name, default)) for name, default in (("PTJOB_SEED", "0"), ("PTJOB_COUNT", "200")))
"""Seeds of the schedules with stand-ins; `make soak-preemptions` tries more of them."""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemptions, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr("ptjob_provider.airflow.triggers.SHORTEST", 0.0)


class Task:
    """One task instance, with what Airflow's server keeps of it.

    Attributes:
        given: Context of its current try.
        arguments: Arguments of its operator.
        deferrals: Number of its deferrals.
    """

    def __init__(self, serve: Callable[[Any], None], *, retries: int = 0, **arguments: Any) -> None:
        self.serve = serve
        self.given = context(StandInTaskInstance(max_tries=retries))
        self.given["task"].execution_timeout = arguments.pop("execution_timeout", None)
        self.arguments = {"max_preemptions": 2, "workers": 1, "retries": retries, **arguments}
        self.deferrals = 0

    @property
    def ti(self) -> StandInTaskInstance:
        return self.given["ti"]  # type: ignore[no-any-return]

    def starts(self) -> dict[str, Any] | PyTorchJobTrigger:
        """Run `execute`; return the result, or the trigger of a deferral."""
        return self._ended(lambda: operator(**self.arguments).execute(self.given))

    def resumes(self, event: dict[str, Any]) -> dict[str, Any] | PyTorchJobTrigger:
        """Run `execute_complete` with an event as Airflow's database has it."""
        return self._ended(lambda: operator(**self.arguments).execute_complete(self.given, event))

    def _ended(self, step: Callable[[], dict[str, Any]]) -> dict[str, Any] | PyTorchJobTrigger:
        try:
            return step()
        except TaskDeferred as deferred:
            self.deferrals += 1
            return self.in_a_triggerer(deferred.trigger.serialize())

    def in_a_triggerer(self, row: tuple[str, dict[str, Any]]) -> PyTorchJobTrigger:
        """Return the trigger as a triggerer builds it from its row in the database."""
        path, fields = json.loads(json.dumps(row))
        module, _, name = path.rpartition(".")
        made: PyTorchJobTrigger = getattr(import_module(module), name)(**fields)
        made.task_instance, made._log = self.ti, ListLogger()
        return made

    def runs(self) -> dict[str, Any]:
        """Run the try to its end, through all its deferrals."""
        step = self.starts()
        while not isinstance(step, dict):
            step = self.resumes(asyncio.run(fired(step)))
        return step

    def is_tried_again(self) -> None:
        """Begin the next try, in which Airflow before 3.3 has no XComs of this one."""
        self.ti.start_date = datetime.now(UTC)
        self.ti.try_number += 1
        self.ti.pushed = {}

    def is_cleared(self) -> None:
        """Clear the task."""
        self.ti.max_tries = self.ti.try_number + self.given["task"].retries
        self.is_tried_again()


async def fired(trigger: PyTorchJobTrigger) -> dict[str, Any]:
    """Return the trigger's event as Airflow's database has it."""
    (event,) = [event async for event in trigger.run()]
    return dict(json.loads(json.dumps(event.payload)))


@each_row("deferrable", [False, True])
def test_an_eviction_uses_none_of_airflows_retries(serve: Callable[[Any], None], *, deferrable: bool) -> None:
    """One try of a task without retries trains three times, and says what it has lost."""
    backend = PreemptingStandIn("evicted", "evicted")
    serve(backend)
    task = Task(serve, deferrable=deferrable)

    result = task.runs()

    lost = {"node": "node-1", "cause": "evicted", "seconds_lost": 60.0}
    assert (result["attempt"], result["preemptions"]) == (3, [lost, lost])
    assert task.ti.pushed["preemptions"] == [lost, lost]
    assert task.ti.pushed["job_uid"] == "uid-3"
    assert (backend.attempts, backend.together, task.deferrals) == ([1, 2, 3], [1, 1, 1], 3 * deferrable)


@each_row(
    ("arguments", "created"),
    [
        ({}, 1),
        ({"retries": 1}, 4),
        ({"checkpoints": "pvc://models/digits"}, 4),
        ({"retries": 1, "max_preemptions": 0}, 1),
        ({"max_preemptions": 3, "never_retry_on": ["evicted"]}, 1),
    ],
)
def test_the_default_is_three_where_a_failure_is_worth_another_attempt(
    serve: Callable[[Any], None], arguments: dict[str, Any], created: int
) -> None:
    """A task with `retries` or `checkpoints`; any other fails at the first eviction, and so does one that says so."""
    backend = PreemptingStandIn(*["evicted"] * 4)
    serve(backend)

    with pytest.raises(AirflowException):
        Task(serve, **{"max_preemptions": None, **arguments}).runs()

    assert backend.created == created


class TestThePause:
    @pytest.fixture(autouse=True)
    def _long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(preemptions, "_FIRST_PAUSE", 200.0)

    def test_a_pause_is_waited_for_in_the_triggerer(
        self, serve: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backend = PreemptingStandIn("evicted", "evicted")
        serve(backend)
        task = Task(serve, deferrable=True)
        second = task.resumes(asyncio.run(fired(task.starts())))  # type: ignore[arg-type]

        async def until_it_waits() -> str:
            running = asyncio.create_task(fired(second))  # type: ignore[arg-type]
            await until(lambda: running.done() or "goes on in" in second._log.text)  # type: ignore[union-attr]
            running.cancel()
            await second.on_kill()  # type: ignore[union-attr]
            with contextlib.suppress(asyncio.CancelledError):
                await running
            return second._log.text  # type: ignore[union-attr, no-any-return]

        text = asyncio.run(until_it_waits())

        assert "was ended by the platform; its task goes on in " in text
        assert (backend.created, backend.running) == (2, [])

    def test_a_worker_that_waits_is_stopped_at_once(
        self, serve: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backend = PreemptingStandIn("evicted")
        serve(backend)
        made = operator(max_preemptions=2, workers=1)

        def told_to_stop(count: int) -> float:
            made.on_kill()
            return 200.0

        monkeypatch.setattr(preemptions, "pause_after", told_to_stop)

        with pytest.raises(TaskStopped, match="told to stop"):
            made.execute(context())

        assert (backend.created, backend.running) == (1, [])


@each_row("state", ["failed", "success", "restarting", "none"])
def test_a_task_that_no_longer_runs_makes_no_next_attempt(
    serve: Callable[[Any], None], comms: FakeComms, state: str
) -> None:
    """A worker learns only at its next heartbeat that its task was marked or cleared."""
    backend = PreemptingStandIn("evicted")
    serve(backend)
    task = Task(serve, deferrable=True)
    comms.state = "running"
    event = asyncio.run(fired(task.starts()))  # type: ignore[arg-type]
    comms.state = state

    with pytest.raises(TaskStopped):
        task.resumes(event)

    assert (backend.created, backend.running) == (1, [])


@since(3, 3, "a state store of the task")
def test_a_try_that_was_replaced_in_its_pause_makes_no_next_attempt(
    serve: Callable[[Any], None], comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker was frozen: Airflow says "running" of the next try, and has no stored state for this one."""
    backend = PreemptingStandIn("evicted")
    serve(backend)
    comms.state = "running"
    task = Task(serve)
    pause = preemptions.sentence

    def frozen(*args: Any, **how: Any) -> str:
        backend.jobs.clear()  # the next try replaces the job
        monkeypatch.setattr(task.given["task_state_store"], "get", lambda _: None)
        return pause(*args, **how)

    monkeypatch.setattr(preemptions, "sentence", frozen)

    with pytest.raises(TaskStopped):
        task.runs()

    assert (backend.created, backend.running) == (1, [])


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_whatever_happens_to_a_task_it_never_has_two_jobs(
    seed: int, serve: Callable[[Any], None], comms: FakeComms
) -> None:
    """Workers and triggerers are killed at any request, tasks are cleared and marked, and an event may come twice."""
    choice = random.Random(seed)  # noqa: S311 - a schedule, no secret
    backend = PreemptingStandIn(*(choice.choice(["evicted", "evicted", "fails", "succeeds"]) for _ in range(6)))
    limit, timeout = choice.randrange(4), timedelta(hours=1)
    way = {"deferrable": choice.random() < 0.7, "max_preemptions": limit, "execution_timeout": timeout}
    way["retries"] = choice.randrange(4)
    schedule = Schedule(Task(serve, **way), backend, serve, comms, choice)

    while schedule.is_open and len(schedule.history) < 60:
        schedule.goes_on()

    assert max(backend.together, default=1) == 1, schedule.history
    assert not HAS_TASK_STORE or backend.attempts == sorted(set(backend.attempts)), schedule.history
    assert not schedule.is_settled or not backend.running, schedule.history
    for text in schedule.history:
        is_explained = "allows no further attempt" in text or "its deadline passes" in text
        assert "was evicted" not in text or not limit or is_explained, schedule.history


class Schedule:
    """What happens to one task instance, one step at a time.

    Attributes:
        step: The trigger that the task waits for. None: the task is in a worker.
        event: The event that the task is resumed with. None: `execute` is called.
        is_settled: The task has ended, by itself or because a person has marked it, so that no job may run.
        is_left: A killed worker has left its job. If the task is marked before its next try, nobody can delete the job
            but the orphan search.
        history: What has happened.
    """

    def __init__(
        self, task: Task, backend: PreemptingStandIn, serve: Callable[[Any], None], comms: FakeComms, choice: Any
    ) -> None:
        self.task, self.backend, self.serve, self.comms, self.choice = task, backend, serve, comms, choice
        self.step: Any = None
        self.event: dict[str, Any] | None = None
        self.is_open, self.is_settled, self.is_left = True, False, False
        self.history: list[str] = []

    def goes_on(self) -> None:
        """Let the next thing happen."""
        act = self.choice.choices(["works", "is late", "is cleared", "is marked"], [20, 1, 1, 1])[0]
        self.history.append(act)
        if act == "is late":  # the next end of a job is after the deadline
            self.task.ti.start_date -= timedelta(hours=2)
        if act in {"works", "is late"}:
            self.works()
            return
        self.comms.state = "none" if act == "is cleared" else "failed"
        self.serve(self.backend)
        if self.step is not None:
            asyncio.run(self.step.on_kill())
        self.step = self.event = None
        if act == "is marked":
            self.is_open, self.is_settled = False, not self.is_left
        else:
            self.task.is_cleared()

    def works(self) -> None:
        """Let the process that has the task work, until it ends or is killed."""
        is_killed, is_done = self.choice.random() < 0.6, self.choice.random() < 0.5
        self.serve(MortalBackend(self.backend, Life(self.choice.randrange(20) if is_killed else 1000, is_done=is_done)))
        self.comms.state = "running" if self.step is None else "deferred"
        try:
            if self.step is not None:
                self.event, self.step = asyncio.run(fired(self.step)), None
                return
            self.is_left = False
            ended = self.task.starts() if self.event is None else self.task.resumes(self.event)
        except Killed:
            self.history.append("is killed")
            self.is_left = self.step is None
            self._is_killed()
        except (AirflowException, AirflowTaskTimeout) as error:
            self.history.append(f"fails: {error}")
            self.is_settled = not self._is_tried_again()
        else:
            self.event = None
            self.step, self.is_open = (None, False) if isinstance(ended, dict) else (ended, True)
            self.is_settled = not self.is_open

    def _is_killed(self) -> None:
        if self.step is not None:  # another triggerer builds the trigger anew
            self.step = self.task.in_a_triggerer(self.step.serialize())
        elif self.event is None or self.choice.random() < 0.5:
            self._is_tried_again()
        # else a scheduler has reset the task, and it is resumed with the same event

    def _is_tried_again(self) -> bool:
        self.event = None
        self.is_open = self.task.ti.try_number <= self.task.ti.max_tries
        if self.is_open:
            self.task.is_tried_again()
        return self.is_open
