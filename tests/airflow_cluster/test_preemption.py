"""Tests of tasks whose job loses a pod to the Eviction API: one deferred, one that waits in its worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_cluster.conftest import PATIENCE, PREEMPTED
from cluster.layout import NODE
from kubernetes_backend.endings import evict

if TYPE_CHECKING:
    from airflow_cluster.conftest import Lab
    from task_run import TaskRun

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def preempted(lab: Lab) -> dict[str, TaskRun]:
    return {name: lab.start(name) for name in PREEMPTED}


@pytest.mark.parametrize(("name", "deferrals"), [("wait-evicted", 0), ("defer-evicted", 2)])
def test_a_task_without_retries_survives_an_eviction(
    lab: Lab, preempted: dict[str, TaskRun], name: str, deferrals: int
) -> None:
    """One try trains twice; a deferred task is resumed after the first job, and defers again for the second."""
    task = preempted[name]
    task.wait_for_line("attempt 1", timeout=PATIENCE)
    first = task.ref

    evict(lab.cluster.kubectl, lab.namespace, f"{first.name}-worker-0")

    assert task.wait(timeout=PATIENCE) == "success"
    task.wait_for_line("attempt 2", timeout=PATIENCE)
    assert task.now["try_number"] == 1
    assert (task.xcom()["attempt"], lab.ever_submitted(name)) == (2, {first.uid, task.ref.uid})
    (lost,) = task.xcom("preemptions")
    assert (lost["node"], lost["cause"]) == (NODE, "evicted")
    assert task.text().count("Pausing task as DEFERRED") == deferrals
