"""DAG whose task instances are written into the database as deferred; a worker only runs what follows the deferral."""

from __future__ import annotations

from airflow.sdk import DAG

from ptjob_provider.airflow.operators import PyTorchJobOperator

with DAG("waiting", schedule=None):
    PyTorchJobOperator(task_id="train", name="waiting", image="none", deferrable=True)
