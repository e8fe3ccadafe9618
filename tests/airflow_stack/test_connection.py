"""Airflow's real components and a real cluster: who has to know the connection to it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import postgresql
from cluster.tenants import namespace_in
from demo.stack import Stack, StackConfig
from ptjob_provider.core.identity import UNFOLLOWED_ANNOTATION
from task_run import TaskRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.boot import Cluster

pytestmark = pytest.mark.timeout(900)

DAGS = """
from airflow.sdk import DAG
from ptjob_provider.airflow.operators import PyTorchJobOperator

for conn_id, seconds in {"in_database": 5, "on_workers": 600}.items():
    with DAG(conn_id, schedule=None):
        PyTorchJobOperator(
            task_id="train",
            image="docker.io/library/alpine:3.10",
            image_pull_policy="Never",
            command=["sh", "-c", "for i in $(seq $0); do echo tick $i; sleep 1; done", seconds],
            termination_grace_period=1,
            kubernetes_conn_id=conn_id,
            deferrable=True,
        )
"""


@pytest.fixture(scope="module")
def stack(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> Iterator[Stack]:
    """Start Airflow with two connections to the cluster: one in its database, one in its workers' environment."""
    root = tmp_path_factory.mktemp("connections")
    (root / "dags").mkdir()
    (root / "dags" / "connections.py").write_text(DAGS)
    with postgresql.database_if_possible(tell) as address, namespace_in(cluster) as namespace:
        config = StackConfig(
            home=root / "home",
            dags=root / "dags",
            database_url=address,
            settings={"AIRFLOW__PTJOB__BACKEND": "kubernetes"},
            paused_at_creation=False,
        )
        extra = {"kube_config": cluster.layout.kubeconfig.read_text(), "namespace": namespace}
        connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
        stack = Stack(config)
        stack.components["scheduler"].env = {**stack.env, "AIRFLOW_CONN_ON_WORKERS": connection}
        with stack:
            stack.airflow("connections", "add", "in_database", "--conn-json", connection)
            for dag_id in ("in_database", "on_workers"):
                stack.api.wait_for_dag(dag_id)
            yield stack


def ended(stack: Stack, dag_id: str) -> TaskRun:
    """Run the DAG to its task's end."""
    task = TaskRun(stack, dag_id, stack.api.trigger(dag_id, {}))
    task.wait(timeout=240)
    return task


def test_a_connection_in_the_database_serves_worker_and_triggerer(stack: Stack) -> None:
    """The deferred job is followed on the cluster; each line is in the task's log, once."""
    task = ended(stack, "in_database")

    assert task.state == "success"
    assert [line for line in task.lines() if line.startswith("tick")] == [f"tick {number}" for number in range(1, 6)]


def test_a_connection_that_only_workers_know_is_said_and_ends_no_job(stack: Stack, cluster: Cluster) -> None:
    """The error says where to define it, and that the job runs on: nothing is wrong with the job."""
    task = ended(stack, "on_workers")

    assert task.state == "failed"
    assert "The connection 'on_workers' is unknown to the triggerer" in task.text()
    assert f"{task.ref} was left running" in task.text()
    (left,) = (
        job
        for job in cluster.kubectl.list("pytorchjobs", namespace=task.ref.namespace)
        if job["metadata"]["uid"] == task.ref.uid
    )
    assert UNFOLLOWED_ANNOTATION in left["metadata"]["annotations"]
    assert not left["metadata"].get("deletionTimestamp")
