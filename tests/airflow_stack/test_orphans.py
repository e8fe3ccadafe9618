"""Jobs that their tasks have left behind: found by the maintenance DAG and by `ptjob orphans`, and stopped."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from ptjob_provider.cli import main
from task_run import TaskRun, runs, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_stack.conftest import Lab

WAITS = {"wait_0": "running", "defer_0": "deferred"}

pytestmark = pytest.mark.timeout(900)


def started(lab: Lab, dag_id: str, name: str) -> TaskRun:
    """Start a job that waits for a file, and return once its log is there."""
    task = lab.start(dag_id, "wait_for", name, workers=2)
    task.wait(WAITS[dag_id])
    task.wait_for_line("tick 0001")
    return task


def content(folder: Path) -> dict[str, str]:
    """Return the digest of every file below the folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def _triggerer(lab: Lab) -> Iterator[None]:
    yield
    have_triggerer(lab)


def have_triggerer(lab: Lab) -> None:
    """Return once a triggerer runs."""
    if not lab.stack["triggerer"].is_running:
        lab.stack["triggerer"].start()
    lab.stack.wait_healthy(["triggerer"])


def abandoned_by_a_killed_worker(lab: Lab) -> TaskRun:
    """Return a task that failed because its last try's worker was killed; nobody told its job."""
    task = started(lab, "wait_0", "never")
    task.process().kill()
    assert task.wait() == "failed"
    return task


def abandoned_without_a_triggerer(lab: Lab) -> TaskRun:
    """Return a deferred task that was marked failed while no triggerer ran; nobody told its job.

    The next triggerer would, if it took over what the killed one had before Airflow forgets the trigger.
    """
    task = started(lab, "defer_0", "never")
    lab.stack["triggerer"].kill()
    task.mark("failed")
    assert task.state == "failed"
    return task


def maintain(lab: Lab, **params: Any) -> TaskRun:
    """Run the maintenance DAG to its end."""
    conf = {"grace": 0, **params}
    run = TaskRun(
        lab.stack, "ptjob_maintenance", lab.stack.api.trigger("ptjob_maintenance", conf), task_id="stop_orphans"
    )
    assert run.wait() == "success"
    return run


def ptjob(lab: Lab, *arguments: str) -> Any:
    """Run a command line as on the machine of the stack: its environment says where jobs and whose they are."""
    return CliRunner().invoke(main, arguments, env=lab.stack.env)


@pytest.mark.usefixtures("_triggerer")
@pytest.mark.parametrize("abandon", [abandoned_by_a_killed_worker, abandoned_without_a_triggerer])
@pytest.mark.parametrize("by", ["the maintenance DAG", "ptjob orphans"])
def test_a_job_that_its_task_has_left_behind_is_found_and_stopped(lab: Lab, abandon: Any, by: str) -> None:
    """With its owner told; jobs whose tasks wait go on, and the claims are as they were, byte for byte."""
    wanted = [started(lab, dag_id, "wanted") for dag_id in WAITS]
    task = abandon(lab)
    ref = task.ref
    (lab.work / "weights").write_bytes(bytes(range(256)) * 999)
    before, lived = content(lab.work), runs(ref)

    if by == "ptjob orphans":
        said = ptjob(lab, "orphans", "--airflow-url", lab.stack.api.url, "--older-than", "0s", "--delete").output
    else:
        maintenance = maintain(lab)
        said = maintenance.text()
        assert [found["name"] for found in maintenance.xcom()] == [ref.name]

    assert lived
    until(lambda: not runs(ref), what="the job's end")
    assert content(lab.work) == before
    assert ref.name in said
    assert task.run_id in said
    assert "its task is failed" in said
    assert [waiting.state for waiting in wanted] == ["running", "deferred"]
    assert all(runs(waiting.ref) for waiting in wanted)
    have_triggerer(lab)
    lab.release("wanted")
    assert [waiting.wait() for waiting in wanted] == ["success", "success"]
    (lab.work / "wanted").unlink()
