"""Fakes of the objects that Airflow passes to a task and to a trigger."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time.comms import (
    ErrorResponse,
    GetConnection,
    GetTaskStates,
    GetVariable,
    GetXCom,
    PutVariable,
    SetXCom,
    TaskStatesResult,
    VariableResult,
    XComResult,
)
from pydantic import JsonValue, TypeAdapter

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

SOON = 600.0
"""Seconds within which everything that a test waits for must happen."""

OWNED = {OWNER_ANNOTATION: json.dumps({"instance": "tests", "ids": {"dag_id": "training"}})}
"""Annotations of a job that belongs to this installation."""


class FakeComms:
    """Fake supervisor: returns the task's state and stores XComs.

    Attributes:
        state: the task's state in every answer; None: there is no answer.
        knows: the task instance exists.
        refuses: every request raises an error, as when the API server is unavailable.
        hangs: a trigger's request is never answered, as while a triggerer stops.
        variables: the stored Variables by key.
        xcoms: the stored values by key; `history` has every write.
    """

    def __init__(self) -> None:
        self.state: str | None = "running"
        self.knows = True
        self.refuses = False
        self.hangs = False
        self.variables: dict[str, str] = {}
        self.xcoms: dict[str, Any] = {}
        self.history: list[tuple[str, Any]] = []
        self.questions: list[Any] = []
        self.release = threading.Event()

    def send(self, message: Any) -> Any:
        """Answer a task process, which blocks until the answer."""
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
            state = None if self.state == "none" else self.state
            return TaskStatesResult(task_states={message.run_ids[0]: {name: state}} if self.knows else {})
        if isinstance(message, SetXCom):
            self.xcoms[message.key] = message.value
            self.history.append((message.key, message.value))
            return None
        if isinstance(message, GetXCom):
            return XComResult(key=message.key, value=self.xcoms.get(message.key))
        if isinstance(message, PutVariable):
            self.variables[message.key] = str(message.value)
            return None
        if isinstance(message, GetVariable):
            found = self.variables.get(message.key)
            missing = ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND)
            return missing if found is None else VariableResult(key=message.key, value=found)
        if isinstance(message, GetConnection):
            return ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)
        raise AssertionError(f"the adapter is not known to ask for {type(message).__name__}")


class StandInSupervisor:
    """Fake supervisor with this many unread bytes, which reads `at_a_time` of them before each question."""

    def __init__(self, left: int = 0, *, at_a_time: int = 0) -> None:
        self.left = left
        self.questions = 0
        self._at_a_time = at_a_time

    def unread(self) -> int:
        """Return the unread bytes, as `supervisor.unread_bytes`."""
        self.questions += 1
        self.left = max(self.left - self._at_a_time, 0)
        return self.left


@dataclass
class StandInTaskInstance:
    """The part of Airflow's task instance that the adapter uses."""

    id: str = "the first try's"
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
        """Store an XCom."""
        self.pushed[key] = value

    def xcom_pull(self, *, key: str, map_indexes: int | None = None) -> Any:
        """Return a stored XCom."""
        return self.pushed.get(key)

    def get_first_reschedule_date(self, context: Any) -> datetime | None:
        """Return the time of the sensor's first poke."""
        return self.first_reschedule


class MemoryTaskState:
    """A task state store in memory."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        """Return a stored value."""
        return self.values.get(key)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        """Store a value, if Airflow's supervisor accepts it: a tuple is no JSON value there."""
        self.values[key] = TypeAdapter(JsonValue).validate_python(value)


class ListLogger:
    """A task logger that keeps its records; `warnings` has those of level warning and above."""

    def __init__(self, on_record: Callable[[], None] = lambda: None) -> None:
        self.records: list[str] = []
        self.warnings: list[str] = []
        self.on_record = on_record

    def info(self, template: str, *args: Any) -> None:
        """Store a record."""
        self.records.append(template % args)
        self.on_record()

    def warning(self, template: str, *args: Any) -> None:
        """Store a record, also as a warning."""
        self.warnings.append(template % args)
        self.info(template, *args)

    error = exception = warning

    def debug(self, template: str, *args: Any) -> None:
        """Drop the record."""

    @property
    def text(self) -> str:
        """All records as one text."""
        return "\n".join(self.records)


def context(ti: StandInTaskInstance | None = None, *, execution_timeout: timedelta | None = None) -> dict[str, Any]:
    """Return a context for `execute`, of a task that was never cleared: its `max_tries` equals its `retries`."""
    ti = ti or StandInTaskInstance()
    return {
        "ti": ti,
        "task": SimpleNamespace(execution_timeout=execution_timeout, retries=ti.max_tries),
        "task_state_store": MemoryTaskState(),
    }


def job_object(name: str = "digits", condition: str | None = None, *, uid: str = "u-1", **meta: Any) -> Manifest:
    """Return a job of two replicas as a back-end returns it."""
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
    """Return a line of rank 0; without `at`, its timestamp's second is its number modulo 60."""
    at = at or f"2026-11-20T10:00:{number % 60:02d}Z"
    cursor = LogCursor(pod_uid="p", container="pytorch", restart_count=0, timestamp=at, ordinal=number)
    return LogLine(text=f"line {number}" if text is None else text, timestamp=at, cursor=cursor, continues=continues)


def operator(**arguments: Any) -> PyTorchJobOperator:
    """Return an operator that waits for its job in the worker."""
    return PyTorchJobOperator(**{"task_id": "train", "image": "digits", "deferrable": False, **arguments})


def submitted(backend: ScriptedBackend, given: dict[str, Any], **arguments: Any) -> Submission:
    """Submit a job with an operator of these arguments and return its submission."""
    operator(wait_for_completion=False, **arguments).execute(given)
    return Submission.of(list(backend.jobs.values())[-1])


def end_job(backend: ScriptedBackend, condition: str = "Succeeded") -> None:
    """End the newest job."""
    key = list(backend.jobs)[-1]
    backend.jobs[key] = finished(backend.jobs[key], condition)
    backend.worlds, backend.shown = [Observation(job=backend.jobs[key])], 0


def event_of(submission: Submission, outcome: Outcome, **fields: Any) -> dict[str, Any]:
    """Return the trigger's event as Airflow reads it from its database."""
    has_failed = outcome not in {Outcome.SUCCEEDED, Outcome.UNVERIFIED}
    status = JobStatus(phase=JobPhase.FAILED if has_failed else JobPhase.SUCCEEDED)
    event = JobEvent(submission=submission, outcome=JobOutcome(outcome=outcome, status=status, **fields))
    return dict(json.loads(json.dumps(event.to_dict())))


def trigger_of(job: Manifest, **arguments: Any) -> PyTorchJobTrigger:
    """Return the job's trigger as a triggerer builds it."""
    made = PyTorchJobTrigger(**{"submission": Submission.of(job).to_dict(), **arguments})
    made.task_instance = StandInTaskInstance()
    made._log = ListLogger()
    return made


async def until(holds: Callable[[], bool], what: str = "") -> None:
    """Poll until the condition holds; for conditions that have no event."""
    for _ in range(round(SOON / 0.02)):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited {SOON:.0f} s for {what}")
