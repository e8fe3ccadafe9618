"""The other ways to use the operator: mapped, without waiting, watched by a sensor; and what comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from task_run import TaskRun, runs, until

if TYPE_CHECKING:
    from airflow_stack.conftest import Lab

MODES = ["wait", "defer"]

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("mode", MODES)
def test_the_result_says_where_the_model_is_and_how_the_job_went(lab: Lab, mode: str) -> None:
    """The next task gets everything as one value, and the job's name before the end."""
    task = lab.start(f"{mode}_0", "wait_for", f"result-{mode}", model=f"/claim/{mode}/model.pt", workers=2)
    task.wait_for_line("tick 0000")
    ref = task.ref
    lab.release(f"result-{mode}")

    assert task.wait() == "success"

    result = task.xcom()
    assert result["job"] == ref.to_dict()
    assert result["phase"] == "Succeeded"
    assert result["model"]["uri"] == f"pvc://runs/{mode}/model.pt"
    assert result["model"]["bytes"] == len("weights")
    assert result["run_seconds"] > 0
    assert result["diagnosis"] is None


@pytest.mark.parametrize("mode", MODES)
def test_each_mapped_task_has_a_job_of_its_own(lab: Lab, mode: str) -> None:
    """`.expand()` makes as many jobs, and one of them may fail alone."""
    run_id = lab.stack.api.trigger(f"{mode}_mapped")
    tasks = [TaskRun(lab.stack, f"{mode}_mapped", run_id, "train", index) for index in range(3)]
    lab.stack.api.wait_for_run(f"{mode}_mapped", run_id)

    assert [task.state for task in tasks] == ["success", "failed", "success"]
    assert len({task.ref.name for task in tasks}) == 3
    assert "code 3" in tasks[1].errors()[0].splitlines()[0]


def test_without_waiting_the_task_ends_and_the_job_goes_on(lab: Lab) -> None:
    """`wait_for_completion=False` hands over a job that a sensor can watch."""
    task = lab.start("fire_and_forget", "wait_for", "forgotten")

    assert task.wait() == "success"

    assert task.xcom()["job"] == task.ref.to_dict()
    until(lambda: runs(task.ref), what="the job's beginning")
    lab.release("forgotten")


@pytest.mark.parametrize("mode", MODES)
def test_a_sensor_returns_the_result_of_somebody_elses_job(lab: Lab, mode: str) -> None:
    """It is done when the job is, and it knows how the job went."""
    job = lab.start("fire_and_forget", "wait_for", f"watched-{mode}")
    job.wait()
    sensor = lab.start(f"{mode}_sensor", task_id="watch", job_name=job.ref.name)
    sensor.wait("running", "deferred")

    lab.release(f"watched-{mode}")

    assert sensor.wait() == "success"
    assert sensor.xcom()["job"] == job.ref.to_dict()


@pytest.mark.parametrize("mode", MODES)
def test_a_sensor_that_is_killed_leaves_the_job_alone(lab: Lab, mode: str) -> None:
    """The job is not its own."""
    job = lab.start("fire_and_forget", "wait_for", f"spared-{mode}")
    job.wait()
    until(lambda: runs(job.ref), what="the job's beginning")
    sensor = lab.start(f"{mode}_sensor", task_id="watch", job_name=job.ref.name)
    sensor.wait("deferred" if mode == "defer" else "running")

    sensor.mark("failed")
    sensor.wait("failed")

    assert runs(job.ref)
    lab.release(f"spared-{mode}")


def test_a_sensor_fails_with_the_diagnosis_of_the_job(lab: Lab) -> None:
    """A watcher reads the same first line as the owner."""
    job = lab.start("fire_and_forget", "exit_with", "5")
    job.wait()
    sensor = lab.start("wait_sensor", task_id="watch", job_name=job.ref.name)

    assert sensor.wait() == "failed"

    assert "code 5" in sensor.errors()[0].splitlines()[0]
