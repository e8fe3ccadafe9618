"""Show a run in progress: the state of each task, and the log of the training, line by line."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from demo.rest import FINAL_RUN_STATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from demo.stack import Stack

STREAMED_OPERATOR = "PyTorchJobOperator"
STATE_COLOURS = {
    "success": "green",
    "failed": "red",
    "upstream_failed": "red",
    "deferred": "magenta",
    "running": "cyan",
}
_PACKAGE = "ptjob_provider"


@dataclass
class Story:
    """Shows one run of a DAG in progress."""

    stack: Stack
    console: Console
    dag_id: str
    run_id: str
    states: dict[str, str] = field(default_factory=dict)
    streamed: set[str] = field(default_factory=set)

    def tell(self, *, timeout: float) -> str:
        """Show the run until it has ended, and return its state.

        Raises:
            TimeoutError: the run has not ended in time.
            StackFailed: a component has ended.
        """
        deadline = time.monotonic() + timeout
        while (state := self.stack.api.run(self.dag_id, self.run_id)["state"]) not in FINAL_RUN_STATES:
            self.look()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.run_id} is still {state} after {timeout:.0f} s")
            time.sleep(0.3)
        self.look()
        return str(state)

    def look(self) -> None:
        """Show the changes since the last call; follow a training that has begun to its end."""
        self.stack.check_alive()
        for task in self.stack.api.tasks(self.dag_id, self.run_id):
            self.tell_state(task)
            begun = task["state"] in {"running", "deferred", "success", "failed"}
            if begun and task["operator_name"] == STREAMED_OPERATOR and task["id"] not in self.streamed:
                self.streamed.add(task["id"])
                self.stream(task)

    def tell_state(self, task: dict[str, Any]) -> None:
        """Print a task's state if it has changed."""
        name, state = _name(task), task["state"] or "none"
        if self.states.get(name, "none") != state:
            self.console.print(f"[dim]{_clock()}[/] [bold]{name}[/] is {_coloured(state)}")
        self.states[name] = state

    def stream(self, task: dict[str, Any]) -> None:
        """Show the task's log while it is written."""
        task_id, map_index = task["task_id"], task["map_index"]
        watch = _Interval(0.5, lambda: self.refresh(task_id, map_index))
        records = self.stack.api.follow_log(
            self.dag_id, self.run_id, task_id, attempt=max(1, task["try_number"]), map_index=map_index
        )
        for record in records:
            watch.tick()
            for line in told_lines(record):
                self.console.print(f"[dim]{task_id} {self.states[_name(task)]:>8} │[/] ", end="")
                self.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self.refresh(task_id, map_index)

    def refresh(self, task_id: str, map_index: int) -> None:
        """Read one task's state from Airflow, and print it if it has changed."""
        self.stack.check_alive()
        self.tell_state(self.stack.api.task(self.dag_id, self.run_id, task_id, map_index))


class _Interval:
    """Calls a function at most once per interval."""

    def __init__(self, seconds: float, action: Callable[[], None]) -> None:
        self.seconds = seconds
        self.action = action
        self.last = 0.0

    def tick(self) -> None:
        if time.monotonic() - self.last >= self.seconds:
            self.last = time.monotonic()
            self.action()


def wait_for_scheduled_run(stack: Stack, dag_id: str, *, timeout: float = 120) -> str:
    """Wait for the run that the schedule creates, and return its id.

    Raises:
        TimeoutError: the schedule has created none in time.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        stack.check_alive()
        scheduled = [run for run in stack.api.runs(dag_id) if run["run_type"] == "scheduled"]
        if scheduled:
            return str(scheduled[0]["dag_run_id"])
        time.sleep(0.3)
    raise TimeoutError(f"the schedule of {dag_id} made no run within {timeout:.0f} s\n{stack['scheduler'].tail()}")


def told_lines(record: dict[str, Any]) -> list[str]:
    """Return the record's lines if this package has logged it, or if it is a warning or an error; else none."""
    causes = [line for cause in record.get("error_detail") or () for line in str(cause["exc_value"]).splitlines()]
    is_shown = _PACKAGE in record.get("logger", "") or record.get("level") in {"warning", "error", "critical"}
    return [*record["event"].splitlines(), *causes] if is_shown else []


def _name(task: dict[str, Any]) -> str:
    return str(task["task_id"]) if task["map_index"] < 0 else f"{task['task_id']}[{task['map_index']}]"


def _coloured(state: str) -> str:
    return f"[{STATE_COLOURS.get(state, 'yellow')}]{state}[/]"


def _clock() -> str:
    return time.strftime("%H:%M:%S")
