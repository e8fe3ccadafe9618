"""Stand-ins for what Airflow gives to a task and to a trigger; each says in its name that it is one."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow.sdk.execution_time.comms import GetTaskStates, GetXCom, SetXCom, TaskStatesResult, XComResult

from fakes import finished
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.airflow.outcome import JobEvent
from ptjob_provider.airflow.triggers import PyTorchJobTrigger
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.identity import OWNER_ANNOTATION
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.status import JobPhase, JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from fakes import ScriptedBackend
    from ptjob_provider.core.identity import Manifest

SOON = 60.0
"""Seconds within which everything that a test waits for has happened."""

OWNED = {OWNER_ANNOTATION: json.dumps({"instance": "tests", "ids": {"dag_id": "training"}})}
"""Annotations of a job of this installation."""


class FakeComms:
    """The supervisor's end of the socket: tells the task's state, keeps XComs.

    Attributes:
        state: what it says of the task; None: it never answers.
        refuses: it raises instead, as when the API server is away.
        hangs: a trigger's question is never answered, as while a triggerer stops.
        xcoms: what was set, by key; `history` has every write, `written_at` its second of the monotonic clock.
    """

    def __init__(self) -> None:
        self.state: str | None = "running"
        self.refuses = False
        self.hangs = False
        self.xcoms: dict[str, Any] = {}
        self.history: list[tuple[str, Any]] = []
        self.written_at: list[float] = []
        self.questions: list[Any] = []
        self.release = threading.Event()

    def send(self, message: Any) -> Any:
        """Answer a task process, which blocks until then."""
        if isinstance(message, GetTaskStates) and self.state is None:
            self.release.wait(30)
        return self._answer(message)

    async def asend(self, message: Any) -> Any:
        """Answer a trigger."""
        if self.hangs:
            await asyncio.Event().wait()
        if isinstance(message, GetTaskStates) and self.state is None:
            raise TimeoutError
        return self._answer(message)

    def _answer(self, message: Any) -> Any:
        self.questions.append(message)
        if self.refuses:
            raise ConnectionError("the API server is away")
        if isinstance(message, GetTaskStates):
            name = message.task_ids[0] if message.map_index is None else f"{message.task_ids[0]}_{message.map_index}"
            return TaskStatesResult(task_states={message.run_ids[0]: {name: self.state}})
        if isinstance(message, SetXCom):
            self.xcoms[message.key] = message.value
            self.history.append((message.key, message.value))
            self.written_at.append(time.monotonic())
            return None
        if isinstance(message, GetXCom):
            return XComResult(key=message.key, value=self.xcoms.get(message.key))
        raise AssertionError(f"the adapter is not known to ask for {type(message).__name__}")


class StandInSocketsThatDrain:
    """Some of what was written leaves between any two looks at how much that is."""

    def __init__(self, unsent: int) -> None:
        self.held = unsent

    def has_room(self) -> bool:
        return True

    def is_empty(self) -> bool:
        return self.held <= 0

    def unsent(self) -> int:
        self.held -= 1
        return self.held


@dataclass
class StandInTaskInstance:
    """What the adapter uses of Airflow's task instance."""

    dag_id: str = "training"
    task_id: str = "train"
    run_id: str = "run-1"
    map_index: int = -1
    try_number: int = 1
    max_tries: int = 0
    start_date: datetime = field(default_factory=lambda: datetime.now(UTC))
    first_reschedule: datetime | None = None
    pushed: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        """Keep an XCom."""
        self.pushed[key] = value

    def xcom_pull(self, *, key: str, map_indexes: int | None = None) -> Any:
        """Return what was pushed."""
        return self.pushed.get(key)

    def get_first_reschedule_date(self, context: Any) -> datetime | None:
        """Return when the sensor looked first."""
        return self.first_reschedule


class MemoryTaskState:
    """A task's state store that lives as long as the test."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        """Return what was set."""
        return self.values.get(key)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        """Keep a value."""
        self.values[key] = value


class ListLogger:
    """Keeps the records that a task's log gets; `warnings` are those that are more than news."""

    def __init__(self, on_record: Callable[[], None] = lambda: None) -> None:
        self.records: list[str] = []
        self.warnings: list[str] = []
        self.on_record = on_record

    def info(self, template: str, *args: Any) -> None:
        """Keep one record."""
        self.records.append(template % args)
        self.on_record()

    def warning(self, template: str, *args: Any) -> None:
        """Keep one record, and that it warns."""
        self.warnings.append(template % args)
        self.info(template, *args)

    error = exception = warning

    def debug(self, template: str, *args: Any) -> None:
        """Nobody reads these."""

    @property
    def text(self) -> str:
        """All records."""
        return "\n".join(self.records)


def context(ti: StandInTaskInstance | None = None, *, execution_timeout: timedelta | None = None) -> dict[str, Any]:
    """Return what Airflow gives to `execute`, of a task that nobody has cleared: its tries are its DAG's."""
    ti = ti or StandInTaskInstance()
    return {
        "ti": ti,
        "task": SimpleNamespace(execution_timeout=execution_timeout, retries=ti.max_tries),
        "task_state_store": MemoryTaskState(),
    }


def job_object(name: str = "digits", condition: str | None = None, *, uid: str = "u-1", **meta: Any) -> Manifest:
    """Return a job of two replicas as a back-end has it."""
    kinds = [each for each in ("Created", "Running" if condition else None, condition) if each]
    said = {"status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-11-20T10:05:00Z"}
    role = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "digits"}]}}}
    ended = {"startTime": "2026-11-20T10:00:10Z", "completionTime": "2026-11-20T10:05:00Z"} if condition else {}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "namespace": "team",
            "name": name,
            "uid": uid,
            "creationTimestamp": "2026-11-20T10:00:00Z",
            "labels": {},
            "annotations": {},
            **meta,
        },
        "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": role}},
        "status": {"conditions": [{"type": kind, **said} for kind in kinds], **ended},
    }


def pod_object(name: str, state: dict[str, Any], phase: str = "Failed") -> Manifest:
    """Return a pod whose training container is in this state."""
    return {
        "metadata": {"name": name, "uid": "p", "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {"nodeName": "n", "containers": [{"name": "pytorch"}], "restartPolicy": "Never"},
        "status": {"phase": phase, "containerStatuses": [{"name": "pytorch", "restartCount": 0, "state": state}]},
    }


def log_line(number: int, text: str | None = None, *, at: str = "", continues: bool = False) -> LogLine:
    """Return a line of rank 0, written in this second of a minute unless its time is given."""
    at = at or f"2026-11-20T10:00:{number % 60:02d}Z"
    cursor = LogCursor(pod_uid="p", container="pytorch", restart_count=0, timestamp=at, ordinal=number)
    return LogLine(text=f"line {number}" if text is None else text, timestamp=at, cursor=cursor, continues=continues)


def operator(**arguments: Any) -> PyTorchJobOperator:
    """Return a task that waits for its job in the worker."""
    return PyTorchJobOperator(**{"task_id": "train", "image": "digits", "deferrable": False, **arguments})


def submitted(backend: ScriptedBackend, given: dict[str, Any], **arguments: Any) -> Submission:
    """Return a job that this task has submitted."""
    operator(wait_for_completion=False, **arguments).execute(given)
    return Submission.of(list(backend.jobs.values())[-1])


def end_job(backend: ScriptedBackend, condition: str = "Succeeded") -> None:
    """Let the newest job end."""
    key = list(backend.jobs)[-1]
    backend.jobs[key] = finished(backend.jobs[key], condition)
    backend.worlds, backend.shown = [Observation(job=backend.jobs[key])], 0


def event_of(submission: Submission, outcome: Outcome, **fields: Any) -> dict[str, Any]:
    """Return the trigger's event as it comes out of Airflow's database."""
    has_failed = outcome not in {Outcome.SUCCEEDED, Outcome.UNVERIFIED}
    status = JobStatus(phase=JobPhase.FAILED if has_failed else JobPhase.SUCCEEDED)
    event = JobEvent(submission=submission, conclusion=JobOutcome(outcome=outcome, status=status, **fields))
    return dict(json.loads(json.dumps(event.to_dict())))


def trigger_of(job: Manifest, **arguments: Any) -> PyTorchJobTrigger:
    """Return a job's trigger as a triggerer makes it."""
    made = PyTorchJobTrigger(**{"submission": Submission.of(job).to_dict(), **arguments})
    made.task_instance = StandInTaskInstance()
    made._log = ListLogger()
    return made


async def until(holds: Callable[[], bool], what: str = "") -> None:
    """Wait until something holds that nobody reports."""
    for _ in range(round(SOON / 0.02)):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited {SOON:.0f} s for {what}")
