"""Tasks that make their next attempt themselves after an eviction; the run's conf has a name and a script."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from ptjob_provider.airflow.operators import PyTorchJobOperator

NAME = "{{ dag_run.conf['name'] }}"
OTHERS: dict[str, dict[str, Any]] = {"ours": {}, "ours-look": {"checkpoints": f"pvc://state/{NAME}.checkpoints"}}

for dag_id, others in OTHERS.items():
    with DAG(dag_id, schedule=None):
        PyTorchJobOperator(
            task_id="train",
            name=NAME,
            image="docker.io/library/alpine:3.10",
            command=["sh", "-c", "{{ dag_run.conf['script'] }}"],
            volumes=["state:/state"],
            cpu="10m",
            memory="32Mi",
            deferrable=True,
            retries=0,
            max_preemptions=1,
            **others,
        )
