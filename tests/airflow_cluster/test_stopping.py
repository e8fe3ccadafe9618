"""Tests of killed workers, marking, clearing and timeouts: what happens to a job on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_cluster.conftest import PATIENCE
from task_run import until

if TYPE_CHECKING:
    from airflow_cluster.conftest import Lab
    from task_run import TaskRun


@pytest.mark.parametrize("state", ["failed", "success"])
def test_marking_a_deferred_task_deletes_its_job(lab: Lab, runs: dict[str, TaskRun], state: str) -> None:
    task = runs[f"marked-{state}"]
    task.wait("deferred", timeout=PATIENCE)
    task.wait_for_line("tick 1", timeout=PATIENCE)
    ref = task.ref

    task.mark(state)

    lab.wait_until_gone(ref)
    until(lambda: f"{ref} was deleted: its task is {state}" in task.text(), timeout=PATIENCE, what=task.text)
    assert task.state == state


def test_clearing_a_deferred_task_deletes_its_job_before_the_next_one_begins(
    lab: Lab, runs: dict[str, TaskRun]
) -> None:
    task = runs["cleared"]
    task.wait("deferred", timeout=PATIENCE)
    task.wait_for_line("tick 1", timeout=PATIENCE)
    first = task.ref

    task.clear()
    task.wait_for_line("tick 1", attempt=2, timeout=PATIENCE)
    second = task.ref
    left = lab.pods(first)
    lab.release(second)

    assert task.wait(timeout=PATIENCE) == "success"
    assert left == []
    assert second.uid != first.uid
    assert lab.ever_submitted("cleared") == {first.uid, second.uid}
    assert task.xcom()["attempt"] == 2


def test_execution_timeout_deletes_the_job_of_a_deferred_task(lab: Lab, runs: dict[str, TaskRun]) -> None:
    """Whether it runs or still waits for its pod by then; see `tests/airflow_stack` for a job that runs."""
    task = runs["timed-out"]

    assert task.wait(timeout=PATIENCE) == "failed"

    ref = task.ref
    first = task.errors()[0].splitlines()[0]
    assert first.startswith(f"{ref} ")
    assert "at the deadline" in first
    assert "Pausing task as DEFERRED" in task.text()
    lab.wait_until_gone(ref)
