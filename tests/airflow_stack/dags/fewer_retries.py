"""A DAG whose `retries` a test lowers after a run of it."""

from __future__ import annotations

from airflow.sdk import DAG

from ptjob_provider.airflow.operators import PyTorchJobOperator

RETRIES = 2

with DAG("fewer_retries", schedule=None):
    PyTorchJobOperator(
        task_id="train",
        name="job",
        image="program",
        args=["finish"],
        volumes=["runs:/claim"],
        env={"WORK": "/claim"},
        deferrable=False,
        retries=RETRIES,
    )
