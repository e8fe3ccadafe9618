"""One DAG per execution mode, kind and timeout; the run's conf defines the job as a shell script."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from ptjob_provider.airflow.operators import PyTorchJobOperator

ALPINE = "docker.io/library/alpine:3.10"


def training(**more: Any) -> PyTorchJobOperator:
    """Return a training task whose job is defined by the run's conf; its pods have a grace period of one second."""
    fields: dict[str, Any] = {
        "task_id": "train",
        "name": "{{ dag_run.conf['name'] }}",
        "image": f"{{{{ dag_run.conf.get('image', '{ALPINE}') }}}}",
        "command": ["sh", "-c"],
        "args": "{{ [dag_run.conf['script']] }}",
        "workers": "{{ dag_run.conf.get('workers', 1) }}",
        "code": "{{ dag_run.conf.get('code') }}",
        "volumes": "{{ dag_run.conf.get('volumes') }}",
        "model": "{{ dag_run.conf.get('model') }}",
        "tfevents": "{{ dag_run.conf.get('tfevents') }}",
        "tensorboard": "{{ dag_run.conf.get('tensorboard') }}",
        "termination_grace_period_seconds": 1,
        "retry_delay": timedelta(seconds=1),
    }
    return PyTorchJobOperator(**{**fields, **more})


def dag(dag_id: str) -> DAG:
    """Return a DAG whose templates keep the native types of the run's conf."""
    return DAG(dag_id, schedule=None, render_template_as_native_obj=True)


with dag("defer_0"):
    training(deferrable=True, retries=0)

with dag("defer_trainjob"):
    training(deferrable=True, retries=0, kind="TrainJob")

for mode, deferrable in {"wait": False, "defer": True}.items():
    with dag(f"{mode}_preempted"):
        training(deferrable=deferrable, retries=0, max_preemptions=1)

with dag("defer_timeout"):
    training(deferrable=True, retries=0, execution_timeout=timedelta(seconds=180))

with dag("defer_in_database"):
    training(deferrable=True, retries=0, kubernetes_conn_id="in_database")

with dag("defer_secret"):
    training(deferrable=True, retries=0, env={"CANARY": {"secret": "credentials", "key": "canary"}})
