"""One DAG per execution mode (deferred or in a worker) and number of retries; the run's conf defines the job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from ptjob_provider.airflow.operators import PyTorchJobOperator

MODES = {"wait": False, "defer": True}


def training(**more: Any) -> PyTorchJobOperator:
    """Return a training task whose job is defined by the run's conf."""
    fields: dict[str, Any] = {
        "task_id": "train",
        "name": "job",
        "image": "program",
        "args": "{{ dag_run.conf.get('args') }}",
        "workers": "{{ dag_run.conf.get('workers', 1) }}",
        "model": "{{ dag_run.conf.get('model') }}",
        "checkpoints": "{{ dag_run.conf.get('checkpoints') }}",
        "volumes": ["runs:/claim"],
        "env": {"WORK": "/claim"},
        "termination_grace_period_seconds": 1,
        "retry_delay": timedelta(seconds=1),
        "progress": r"attempt \d+ step (?P<step>\d+)",
    }
    return PyTorchJobOperator(**{**fields, **more})


def dag(dag_id: str) -> DAG:
    """Return a DAG whose templates keep the native types of the run's conf."""
    return DAG(dag_id, schedule=None, render_template_as_native_obj=True)


for mode, deferrable in MODES.items():
    for retries in (0, 1, 3):
        with dag(f"{mode}_{retries}"):
            training(deferrable=deferrable, retries=retries)

    with dag(f"{mode}_beside"):
        training(deferrable=deferrable, retries=1, retry_delay=timedelta(seconds=15))

        @task
        def beside() -> None:
            """Succeed at once."""

        beside()

    with dag(f"{mode}_timeout"):
        training(deferrable=deferrable, retries=1, execution_timeout=timedelta(seconds=20))

    with dag(f"{mode}_secret"):
        training(
            deferrable=deferrable,
            kubernetes_conn_id="canary",
            env={"WORK": "/claim", "TOKEN": {"secret": "credentials", "key": "token"}},
        )
