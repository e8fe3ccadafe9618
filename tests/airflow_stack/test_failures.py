"""Tests of failed jobs: the error in the task's log, retries, and that no process is left."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from task_run import TaskRun, runs, until

if TYPE_CHECKING:
    from airflow_stack.conftest import Lab


FAILURES: dict[str, tuple[list[str], dict[str, Any], list[str], str]] = {
    "a Python exception on rank 1": (
        ["raise_on", "1"],
        {"workers": 2},
        ["worker-0 (rank 1)", "NameError: name 'optimiser' is not defined", "Fix the training code"],
        "NameError: name 'optimiser' is not defined",
    ),
    "the same, in a worker": (
        ["raise_on", "1"],
        {"workers": 2},
        ["worker-0 (rank 1)", "NameError: name 'optimiser' is not defined", "Fix the training code"],
        "NameError: name 'optimiser' is not defined",
    ),
    "a missing output": (
        ["no_output"],
        {"model": "pvc://runs/missing/model.pt"},
        ["master-0 (rank 0)", "is missing", "Save the model"],
        "forgot to save",
    ),
}


@pytest.fixture(scope="module")
def failed(lab: Lab) -> dict[str, TaskRun]:
    """Start all failures at once, alternately deferred and in a worker; tests/contract covers other failures."""
    modes = ("defer_3", "wait_3")
    tasks = {
        name: lab.start(modes[number % 2], *args, **conf)
        for number, (name, (args, conf, _, _)) in enumerate(FAILURES.items())
    }
    for task in tasks.values():
        task.wait()
    return tasks


@pytest.mark.parametrize("name", FAILURES)
def test_the_first_line_says_which_replica_why_and_what_to_do(failed: dict[str, TaskRun], name: str) -> None:
    task = failed[name]
    _, _, wanted, tail = FAILURES[name]

    first, *rest = task.errors()[0].splitlines()

    assert task.state == "failed"
    assert first.startswith(str(task.ref))
    for words in wanted:
        assert words in first
    assert tail in "\n".join(rest)
    assert not runs(task.ref)


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_that_a_retry_cannot_help_is_tried_once(failed: dict[str, TaskRun], name: str) -> None:
    assert failed[name].now["try_number"] == 1


def test_a_lost_supervisor_is_retried_and_training_goes_on_from_its_checkpoint(lab: Lab) -> None:
    task = lab.start("defer_1", "resume", "never", checkpoints="pvc://runs/checkpoints")
    task.wait_for_line("tick 0001")
    ref = task.ref

    supervisor_of(ref.name).kill()

    until(lambda: task.now["try_number"] == 2, what=task.text)
    assert task.wait() == "success"
    assert not runs(ref)
    assert [line for line in task.lines(2) if line.startswith("attempt ")] == [f"attempt 2 step {n}" for n in (3, 4, 5)]
    assert task.xcom()["attempt"] == 2


def supervisor_of(name: str) -> psutil.Process:
    """Return the supervisor process of the job."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "ptjob_provider.core.local.supervisor" in words and name in words[-1]:
                return process
    raise AssertionError(f"no supervisor of {name}")
