"""Test of a deferred job on a real cluster whose connection is stored in Airflow's database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import postgresql
from cluster.tenants import namespace_in
from demo.stack import Stack, StackConfig
from task_run import TaskRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.boot import Cluster


DAGS = """
from airflow.sdk import DAG
from ptjob_provider.airflow.operators import PyTorchJobOperator

with DAG("in_database", schedule=None):
    PyTorchJobOperator(
        task_id="train",
        image="docker.io/library/alpine:3.10",
        image_pull_policy="Never",
        command=["sh", "-c", "for i in $(seq 5); do echo tick $i; sleep 1; done"],
        termination_grace_period=1,
        kubernetes_conn_id="in_database",
        deferrable=True,
    )
"""


@pytest.fixture(scope="module")
def stack(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> Iterator[Stack]:
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
        with Stack(config) as stack:
            stack.airflow("connections", "add", "in_database", "--conn-json", connection)
            stack.api.wait_for_dag("in_database")
            yield stack


def test_a_connection_in_the_database_serves_worker_and_triggerer(stack: Stack) -> None:
    task = TaskRun(stack, "in_database", stack.api.trigger("in_database", {}))

    assert task.wait(timeout=240) == "success"
    assert [line for line in task.lines() if line.startswith("tick")] == [f"tick {number}" for number in range(1, 6)]
