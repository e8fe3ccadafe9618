"""Test of a deferred task whose job loses a pod to the Eviction API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_cluster.conftest import PATIENCE
from cluster.layout import NODE
from kubernetes_backend.endings import evict

if TYPE_CHECKING:
    from airflow_cluster.conftest import Lab
    from task_run import TaskRun

pytestmark = pytest.mark.timeout(900)


def test_a_deferred_task_without_retries_survives_an_eviction(lab: Lab, runs: dict[str, TaskRun]) -> None:
    """One try trains twice: it is resumed after the first job, and defers again for the second."""
    task = runs["evicted"]
    task.wait_for_line("attempt 1", timeout=PATIENCE)
    first = task.ref

    evict(lab.cluster.kubectl, lab.namespace, f"{first.name}-worker-0")

    assert task.wait(timeout=PATIENCE) == "success"
    task.wait_for_line("attempt 2", timeout=PATIENCE)
    assert task.now["try_number"] == 1
    assert (task.xcom()["attempt"], lab.ever_submitted("evicted")) == (2, {first.uid, task.ref.uid})
    (lost,) = task.xcom("preemptions")
    assert (lost["node"], lost["cause"]) == (NODE, "evicted")
    assert task.text().count("Pausing task as DEFERRED") == 2
