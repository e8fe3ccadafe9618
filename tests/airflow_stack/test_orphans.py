"""Jobs that their tasks have left behind: found by the maintenance DAG and by `ptjob orphans`, and stopped."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from airflow_stack.conftest import lab_in
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


def test_a_dry_run_only_says_what_it_finds(lab: Lab) -> None:
    """And leaves young jobs alone unless it is told otherwise; both ways of looking see the same."""
    task = abandoned_by_a_killed_worker(lab)
    ref = task.ref

    young = maintain(lab, grace=10, dry_run=True).xcom()
    dry = maintain(lab, dry_run=True)
    listed = ptjob(lab, "orphans", "--airflow-url", lab.stack.api.url, "--older-than", "0s", "-o", "name").stdout

    assert young == []
    assert [(found["name"], found["stopped"]) for found in dry.xcom()] == [(ref.name, False)]
    assert "was left as it is: its task is failed" in dry.text()
    assert listed == f"{ref.name}\n"
    assert runs(ref)
    maintain(lab)
    until(lambda: not runs(ref), what="the job's end")


def test_a_job_whose_run_was_deleted_is_stopped(lab: Lab) -> None:
    """The task instance is gone, and with it whoever could wait."""
    task = abandoned_by_a_killed_worker(lab)
    ref = task.ref
    lab.stack.api.wait_for_run(task.dag_id, task.run_id)  # it ends a moment after its task; before, it stays
    lab.stack.api.delete_run(task.dag_id, task.run_id)

    found = maintain(lab).xcom()

    assert [(each["name"], each["why"]) for each in found] == [(ref.name, "its task instance is gone")]
    until(lambda: not runs(ref), what="the job's end")


def test_two_airflows_that_are_configured_alike_have_their_own_jobs(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same DAG, run, task and namespace, no [ptjob] instance: one's task has failed, the other's job runs on."""
    conf = {"args": ["wait_for", "both"]}
    with lab_in(tmp_path_factory.mktemp("other"), database_url="", PTJOB__LOCAL_ROOT=str(lab.root)) as other:
        mine, theirs = (TaskRun(each.stack, "wait_1", "the-same") for each in (lab, other))
        for task in (mine, theirs):
            body = {"logical_date": None, "dag_run_id": task.run_id, "conf": conf}
            task.stack.api.post(f"dags/{task.dag_id}/dagRuns", body)
        for task in (mine, theirs):
            until(lambda task=task: task.xcom("job_uid") and runs(task.ref), timeout=240, what=task.text)
        ref, other_ref = mine.ref, theirs.ref

        theirs.mark("failed")
        until(lambda: not runs(other_ref), what="the job's end")
        found = maintain(other).xcom()

    assert found == []
    assert ref.namespace == other_ref.namespace
    assert runs(ref)
    lab.release("both")
    assert mine.wait() == "success"
    assert mine.xcom()["attempt"] == 1


def test_a_copied_database_is_noticed_before_a_job_of_the_original_is_stopped(lab: Lab) -> None:
    """By the maintenance DAG, `ptjob doctor` and `ptjob orphans`; the job looks as if nobody waited for it."""
    task = abandoned_by_a_killed_worker(lab)
    ref, url = task.ref, lab.stack.api.url
    ids = lab.stack.api.get("variables", variable_key_pattern="ptjob_instance_")[
        "variables"
    ]  # two, if tasks were quick
    for each in ids:
        set_variable(lab, {**each, "value": "[api] base_url https://original"})
    try:
        run_id = lab.stack.api.trigger("ptjob_maintenance", {"grace": 0})
        maintenance = TaskRun(lab.stack, "ptjob_maintenance", run_id, task_id="stop_orphans")
        state = maintenance.wait()
        doctor = ptjob(lab, "doctor", "--airflow-url", url)
        orphans = ptjob(lab, "orphans", "--airflow-url", url, "--older-than", "0s", "--delete")
    finally:
        for each in ids:
            set_variable(lab, each)

    assert (state, doctor.exit_code, orphans.exit_code) == ("failed", 1, 2)
    assert f"airflow variables delete {ids[0]['key']}" in maintenance.text()
    assert "the Airflow's id" in doctor.output
    assert "may be a copy" in orphans.output
    assert runs(ref)
    assert [found["name"] for found in maintain(lab).xcom()] == [ref.name]
    until(lambda: not runs(ref), what="the job's end")


def set_variable(lab: Lab, variable: dict[str, Any]) -> None:
    """Give a Variable of Airflow this value."""
    body = {name: variable[name] for name in ("key", "value", "description")}
    lab.stack.api.patch(f"variables/{variable['key']}", body)


def test_a_job_that_its_task_only_submitted_is_left_to_run(lab: Lab) -> None:
    """Nobody was ever meant to wait for it."""
    task = lab.start("fire_and_forget", "wait_for", "fired")
    assert task.wait() == "success"
    ref = task.ref
    until(lambda: runs(ref), what="the job's beginning")

    found = maintain(lab).xcom()

    assert found == []
    assert runs(ref)
    lab.release("fired")
    until(lambda: not runs(ref), what="the job's end")
