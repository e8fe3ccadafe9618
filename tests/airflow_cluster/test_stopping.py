"""Tests of killed workers, marking, clearing and timeouts: what happens to a job on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from airflow_cluster.conftest import PATIENCE
from ptjob_provider.cli import main
from task_run import until

if TYPE_CHECKING:
    from airflow_cluster.conftest import Lab
    from task_run import TaskRun

pytestmark = pytest.mark.timeout(900)

ENDS_BY_ITSELF = "timed-out-"
"""Name prefix of the one job that a timeout may delete during another test."""


def ptjob(lab: Lab, *arguments: str) -> Any:
    """Run `ptjob` with the installation's configuration and its kubeconfig."""
    return CliRunner().invoke(
        main, ["--kubeconfig", str(lab.kubeconfig), "-n", lab.namespace, *arguments], env=lab.stack.env
    )


def test_a_job_that_its_task_has_left_behind_is_listed_and_stopped_by_ptjob_orphans(
    lab: Lab, runs: dict[str, TaskRun]
) -> None:
    """The worker of the last try was killed, so nothing deleted the job; jobs whose tasks wait are left alone."""
    task = runs["abandoned"]
    task.wait_for_line("tick 1", timeout=PATIENCE)
    ref = task.ref
    task.process().kill()
    assert task.wait(timeout=PATIENCE) == "failed"
    asked = ("orphans", "--airflow-url", lab.stack.api.url, "--older-than", "0s")

    listed = ptjob(lab, *asked, "-o", "name")
    before = lab.jobs()
    deleted = ptjob(lab, *asked, "--delete")

    assert listed.output == f"{ref.name}\n"
    assert ref.uid in before
    assert deleted.exit_code == 0, deleted.output
    for words in (ref.name, task.run_id, "its task is failed"):
        assert words in deleted.output
    lab.wait_until_gone(ref)
    left_alone = {uid for uid, job in before.items() if not job["metadata"]["name"].startswith(ENDS_BY_ITSELF)}
    assert left_alone - {ref.uid} <= set(lab.jobs())


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

    assert task.wait(timeout=2 * PATIENCE) == "failed"

    ref = task.ref
    first = task.errors()[0].splitlines()[0]
    assert first.startswith(f"{ref} ")
    assert "at the deadline" in first
    assert "Pausing task as DEFERRED" in task.text()
    lab.wait_until_gone(ref)
