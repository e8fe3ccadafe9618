"""Test of the maintenance DAG: it finds and stops an orphaned job."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from airflow_stack.conftest import started
from task_run import TaskRun, runs, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_stack.conftest import Lab


def content(folder: Path) -> dict[str, str]:
    """Return the digest of every file below the folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def _triggerer(lab: Lab) -> Iterator[None]:
    yield
    have_triggerer(lab)


def have_triggerer(lab: Lab) -> None:
    """Start the triggerer unless it is running, and wait until it is healthy."""
    if not lab.stack["triggerer"].is_running:
        lab.stack["triggerer"].start()
    lab.stack.wait_healthy(["triggerer"])


def abandoned(lab: Lab) -> TaskRun:
    """Return a deferred task that was marked failed while no triggerer ran, so that its job was not deleted.

    The next triggerer would delete the job if it took over the killed one's triggers before Airflow removes them.
    """
    task = started(lab, "defer_0", "never")
    lab.stack["triggerer"].kill()
    task.mark("failed")
    assert task.state == "failed"
    return task


@pytest.mark.usefixtures("_triggerer")
def test_a_job_that_its_task_has_left_behind_is_found_and_stopped(lab: Lab) -> None:
    """Jobs whose tasks wait continue, and the content of the claims does not change."""
    wanted = [started(lab, dag_id, "wanted") for dag_id in ("wait_0", "defer_0")]
    task = abandoned(lab)
    ref = task.ref
    (lab.work / "weights").write_bytes(bytes(range(256)) * 999)
    before, lived = content(lab.work), runs(ref)

    run_id = lab.stack.api.trigger("ptjob_maintenance", {"grace": 0})
    maintenance = TaskRun(lab.stack, "ptjob_maintenance", run_id, task_id="stop_orphans")
    assert maintenance.wait() == "success"
    until(lambda: not runs(ref), what="the job's end")

    assert lived
    assert [found["name"] for found in maintenance.xcom()] == [ref.name]
    assert content(lab.work) == before
    said = maintenance.text()
    for words in (ref.name, task.run_id, "its task is failed"):
        assert words in said
    assert [waiting.state for waiting in wanted] == ["running", "deferred"]
    assert all(runs(waiting.ref) for waiting in wanted)
    have_triggerer(lab)
    lab.release("wanted")
    assert [waiting.wait() for waiting in wanted] == ["success", "success"]
