"""Tests of marking, clearing, timeouts and stopped workers: the state of the task, and what happens to its job."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from airflow_stack.conftest import WAITS, started
from airflow_versions import HANDS_SIGTERM_ON, KEEPS_ATTEMPTS
from task_run import TaskRun, runs, until

if TYPE_CHECKING:
    from airflow_stack.conftest import Lab


@pytest.mark.parametrize("mode", WAITS)
@pytest.mark.parametrize("state", ["failed", "success"])
def test_marking_a_task_stops_its_job_and_leaves_the_mark(lab: Lab, mode: str, state: str) -> None:
    task = started(lab, f"{mode}_1", "never")
    ref = task.ref

    task.mark(state)
    until(lambda: not runs(ref), what="the job's end")

    until(lambda: f"was deleted: {'its' if mode == 'defer' else 'the'} task is {state}" in task.text())
    assert task.state == state


@pytest.mark.parametrize("mode", WAITS)
def test_clearing_a_task_stops_its_job_before_the_next_attempt_begins(lab: Lab, mode: str) -> None:
    task = started(lab, f"{mode}_0", f"cleared-{mode}")
    first = task.ref

    task.clear()
    task.wait_for_line("tick 0000 of 2" if KEEPS_ATTEMPTS else "tick 0000", attempt=2)

    second = task.ref
    assert not runs(first)
    assert second.uid != first.uid
    assert runs(second)
    lab.release(f"cleared-{mode}")
    assert task.wait() == "success"
    if KEEPS_ATTEMPTS:
        assert task.xcom()["attempt"] == 2


@pytest.mark.parametrize(("mode", "when"), [("wait", "running"), ("wait", "up_for_retry"), ("defer", "deferred")])
def test_clearing_another_task_of_the_run_leaves_the_job_alone(lab: Lab, mode: str, when: str) -> None:
    """Clearing raises the run's clear_number, also while the job is followed and between two tries."""
    task = started(lab, f"{mode}_beside", f"beside-{mode}-{when}")
    ref, other = task.ref, TaskRun(lab.stack, task.dag_id, task.run_id, "beside")
    assert other.wait() == "success"
    if when == "up_for_retry":
        task.process().kill()
        task.wait(when)

    other.clear()
    until(lambda: other.now["try_number"] == 2 and other.state == "success", what="the other task's second try")
    if when == "running":
        task.process().kill()
    if mode == "wait":
        task.wait_for_line("tick 0001", attempt=2)
    lab.release(f"beside-{mode}-{when}")

    assert task.wait() == "success"
    assert task.ref == ref
    assert task.xcom()["attempt"] == 1


@pytest.mark.parametrize("mode", WAITS)
def test_execution_timeout_stops_the_job_and_is_retried_as_a_new_attempt(lab: Lab, mode: str) -> None:
    task = lab.start(f"{mode}_timeout", "wait_for", "never", workers=2)
    until(lambda: all(task.xcom(f"job_{key}") for key in ("name", "namespace", "uid")), what="the job")
    ref = task.ref

    until(lambda: not runs(ref), what="the job's end")

    until(task.errors, what=task.text)
    assert task.errors()[0].splitlines()[0].startswith(f"{ref} ")
    assert "unfinished at the deadline" in task.errors()[0].splitlines()[0]
    assert task.wait() == "failed"
    assert task.now["try_number"] == 2
    assert task.ref.uid != ref.uid
    assert not runs(task.ref)


@pytest.mark.parametrize("whom", ["task", pytest.param("worker", marks=HANDS_SIGTERM_ON)])
def test_a_drained_worker_leaves_the_job_to_the_next_try(lab: Lab, whom: str) -> None:
    """SIGTERM with a try left: the next try adopts the same job, and its log is complete."""
    name = f"drained-{whom}"
    task = started(lab, "wait_1", name)
    ref, process = task.ref, task.process()

    (process if whom == "task" else process.parent()).send_signal(signal.SIGTERM)  # type: ignore[union-attr]
    task.wait_for_line("tick 0001", attempt=2)

    assert task.ref == ref
    assert runs(ref)
    assert f"{ref} is kept: the next try adopts it" in task.errors(1)[0]
    lab.release(name)
    assert task.wait() == "success"
    assert f"{ref} was adopted" in task.text(2)
    assert [line for line in task.lines(2) if line.startswith("tick 0000")] == ["tick 0000 of 1"]
    assert task.xcom()["attempt"] == 1


def test_a_drained_worker_takes_the_job_along_on_the_last_try(lab: Lab) -> None:
    """SIGTERM without a try left: nothing would follow the job any more, so it is deleted."""
    task = started(lab, "wait_0", "never")
    ref = task.ref

    task.process().send_signal(signal.SIGTERM)

    until(lambda: not runs(ref), what="the job's end")
    assert task.wait() == "failed"
    assert f"{ref} was deleted: this was the last try" in task.errors()[0]


def test_the_retry_of_a_killed_worker_adopts_the_running_job(lab: Lab) -> None:
    """After SIGKILL there is one job, trained once."""
    task = started(lab, "wait_1", "killed")
    ref = task.ref

    task.process().kill()
    task.wait_for_line("tick 0001", attempt=2)

    assert task.ref == ref
    assert f"{ref} was submitted" in task.text(1)
    assert f"{ref} was adopted" in task.text(2)
    lab.release("killed")
    assert task.wait() == "success"
    assert task.lines(2).count("rank 0 finished") == 1
    assert task.xcom()["attempt"] == 1
