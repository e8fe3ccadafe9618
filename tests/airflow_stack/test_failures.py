"""Tests of failed jobs: the error in the task's log, retries, and that no process is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_stack.conftest import WAITS
from task_run import TaskRun, runs

if TYPE_CHECKING:
    from airflow_stack.conftest import Lab, Retried


FAILURES: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "a Python exception on rank 1": ("defer_3", ["raise_on", "1"], {"workers": 2}),
    "the same, in a worker": ("wait_3", ["raise_on", "1"], {"workers": 2}),
    "a missing output": ("defer_3", ["no_output"], {"model": "pvc://runs/missing/model.pt"}),
}
SAID = {
    "raise_on": ("worker-0 (rank 1)", "NameError: name 'optimiser' is not defined", "Fix the training code"),
    "no_output": ("master-0 (rank 0)", "is missing", "Save the model"),
}
"""Words of the first line: the replica, the cause, and what to do."""


@pytest.fixture(scope="module")
def failed(lab: Lab) -> dict[str, TaskRun]:
    """Start all failures at once, deferred or in a worker; tests/contract covers other failures."""
    tasks = {name: lab.start(dag_id, *args, **conf) for name, (dag_id, args, conf) in FAILURES.items()}
    for task in tasks.values():
        task.wait()
    return tasks


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_that_a_retry_cannot_help_is_tried_once(failed: dict[str, TaskRun], name: str) -> None:
    task = failed[name]

    assert (task.state, task.now["try_number"]) == ("failed", 1)
    first = task.errors()[0].splitlines()[0]
    assert first.startswith(str(task.ref))
    assert [words for words in SAID[FAILURES[name][1][0]] if words not in first] == []
    assert not runs(task.ref)


@pytest.mark.parametrize("mode", WAITS)
def test_a_lost_supervisor_is_retried_and_training_goes_on_from_its_checkpoint(
    retried: dict[str, Retried], mode: str
) -> None:
    task = retried[mode].task

    assert task.now["try_number"] == 2
    assert not runs(retried[mode].ref)
    assert [line for line in task.lines(2) if line.startswith("attempt ")] == [f"attempt 2 step {n}" for n in (3, 4, 5)]
    assert task.xcom()["attempt"] == 2
