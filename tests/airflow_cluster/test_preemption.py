"""Tests of tasks whose job loses a pod to the Eviction API: one deferred, one that waits in its worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_cluster.conftest import PATIENCE, PREEMPTED
from cluster.layout import NODE
from kubernetes_backend.endings import evict
from task_run import until

if TYPE_CHECKING:
    from airflow_cluster.conftest import Lab
    from ptjob_provider.core.identity import JobRef
    from task_run import TaskRun


@pytest.fixture(scope="module")
def evicted(lab: Lab) -> dict[str, tuple[TaskRun, JobRef]]:
    """Start both tasks, evict a pod of each one's job, and return them with these jobs."""
    tasks = {name: lab.start(name) for name in PREEMPTED}
    for task in tasks.values():
        task.wait_for_line("attempt 1", timeout=PATIENCE)
    found = {name: (task, task.ref) for name, task in tasks.items()}
    for _, ref in found.values():
        worker = f"{ref.name}-worker-0"
        until(lambda worker=worker: runs(lab, worker), timeout=PATIENCE, what=f"{worker} to run")
        evict(lab.cluster.kubectl, lab.namespace, worker)
    return found


def runs(lab: Lab, name: str) -> bool:
    """Return whether a pod trains: one that is evicted while it waits for rank 0 may be replaced within its job."""
    pods = lab.cluster.kubectl.list("pods", namespace=lab.namespace)
    return any(pod["metadata"]["name"] == name and pod["status"].get("phase") == "Running" for pod in pods)


@pytest.mark.usefixtures("timed_out")
@pytest.mark.parametrize(("name", "deferrals"), [("wait-evicted", 0), ("defer-evicted", 2)])
def test_a_task_without_retries_survives_an_eviction(
    lab: Lab, evicted: dict[str, tuple[TaskRun, JobRef]], name: str, deferrals: int
) -> None:
    """One try trains twice; a deferred task is resumed after the first job, and defers again for the second."""
    task, first = evicted[name]

    assert task.wait(timeout=PATIENCE) == "success", task.text()
    task.wait_for_line("attempt 2", timeout=PATIENCE)
    assert task.now["try_number"] == 1
    assert (task.xcom()["attempt"], lab.ever_submitted(name)) == (2, {first.uid, task.ref.uid})
    (lost,) = task.xcom("preemptions")
    assert (lost["node"], lost["cause"]) == (NODE, "evicted")
    assert task.text().count("Pausing task as DEFERRED") == deferrals
