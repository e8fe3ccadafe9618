"""One task of one run on the real stack: its state, log, job, and the buttons of Airflow's UI."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from ptjob_provider.airflow.task_log import CONTINUES
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.local.processes import with_mark

if TYPE_CHECKING:
    from collections.abc import Callable

    from demo.stack import Stack


@dataclass(frozen=True)
class TaskRun:
    """A task instance; attempts are Airflow's try numbers."""

    stack: Stack
    dag_id: str
    run_id: str
    task_id: str = "train"
    map_index: int = -1

    @property
    def now(self) -> dict[str, Any]:
        """The task instance in Airflow's API."""
        return self.stack.api.task(self.dag_id, self.run_id, self.task_id, self.map_index)

    @property
    def state(self) -> str | None:
        return self.now["state"]

    def wait(self, *states: str, timeout: float = 240) -> str:
        """Wait until the task has one of the states, by default a final one, and return it."""
        try:
            return self.stack.api.wait_for_task(
                self.dag_id, self.run_id, self.task_id, *states, timeout=timeout, map_index=self.map_index
            )
        except TimeoutError as error:
            raise AssertionError(f"{self.dag_id}: {error}\n{self.text(self.now['try_number'])}") from error

    def wait_for_line(self, text: str, *, attempt: int = 1, timeout: float = 240) -> None:
        """Wait until a line of the log starts with the text."""
        until(
            lambda: any(line.startswith(text) for line in self.lines(attempt)),
            timeout=timeout,
            what=lambda: self.text(attempt),
        )

    def records(self, attempt: int = 1) -> list[dict[str, Any]]:
        """Return the log records from the REST API."""
        return self.stack.api.log(self.dag_id, self.run_id, self.task_id, attempt, self.map_index)

    def lines(self, attempt: int = 1) -> list[str]:
        """Return the log lines from the REST API, with the pieces of long lines joined."""
        return joined([line for record in self.records(attempt) for line in str(record.get("event", "")).split("\n")])

    def text(self, attempt: int = 1) -> str:
        """Return the log as one string, including the messages of exceptions."""
        return "\n".join([*self.lines(attempt), *self.errors(attempt)])

    def errors(self, attempt: int = 1) -> list[str]:
        """Return the messages of the exceptions in the log, the last raised first."""
        details = [detail for record in self.records(attempt) for detail in record.get("error_detail") or ()]
        return [str(detail["exc_value"]) for detail in details]

    def xcom(self, key: str = "return_value") -> Any:
        return self.stack.api.xcom(self.dag_id, self.run_id, self.task_id, key, self.map_index)

    @property
    def ref(self) -> JobRef:
        """The task's job, from its XComs."""
        fields = {key: self.xcom(f"job_{key}") for key in ("name", "namespace", "uid")}
        return JobRef(kind="PyTorchJob", **fields)

    def mark(self, state: str) -> None:
        """Set the state as the UI's button does."""
        self.stack.api.set_task_state(self.dag_id, self.run_id, self.task_id, state, self.map_index)

    def clear(self) -> None:
        """Clear the task as the UI's button does."""
        self.stack.api.clear(self.dag_id, self.run_id, self.task_id)

    def process(self) -> psutil.Process:
        """Return the worker's process that runs the task."""
        wanted = f"airflow worker -- {self.now['id']}"
        workers = self.stack["scheduler"].processes()
        return next(process for process in workers if title(process).startswith(wanted))


def joined(lines: list[str]) -> list[str]:
    """Join the pieces of long lines."""
    found: list[str] = []
    goes_on = False
    for line in lines:
        text = line.removesuffix(CONTINUES)
        if goes_on:
            found[-1] += text
        else:
            found.append(text)
        goes_on = text != line
    return found


def title(process: psutil.Process) -> str:
    """Return the title of a process, or "" if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def runs(ref: JobRef) -> bool:
    """Return whether any process of the job is alive."""
    return bool(with_mark(f"{ref.uid}/"))


def until(
    probe: Callable[[], Any], *, timeout: float = 240, what: str | Callable[[], str] = "it", interval: float = 0.1
) -> None:
    """Wait until the probe returns true."""
    began = time.monotonic()
    while not probe():
        if time.monotonic() - began > timeout:
            raise AssertionError(f"waited {timeout:.0f} s in vain for {what if isinstance(what, str) else what()}")
        time.sleep(interval)
