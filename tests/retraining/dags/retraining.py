"""One DAG per source: a run reserves the batches that arrived, and trains a model on all data so far."""

from __future__ import annotations

import json
import os

from airflow.sdk import DAG, Asset, AssetWatcher

from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.retraining.operators import ClaimBatchesOperator, DataLedger
from ptjob_provider.retraining.triggers import DataArrivalTrigger

POLL = float(os.environ["RETRAINING_POLL"])


def retraining(series: str, source: str) -> None:
    """Define the DAG of a source."""
    conn_id = "store" if source.startswith("s3://") else None
    trigger = DataArrivalTrigger(source, conn_id=conn_id, poll_seconds=POLL)
    arrived = Asset(f"{series}-arrived", watchers=[AssetWatcher(name="drops", trigger=trigger)])
    ledger = DataLedger("ledger", series)
    claimed = "{{ ti.xcom_pull('claim')['%s'] }}"
    new = "{{ ti.xcom_pull('claim')['new'] | join(',') }}"
    with DAG(f"retrain_{series}", schedule=[arrived], max_active_runs=1):
        claim = ClaimBatchesOperator(task_id="claim", ledger=ledger, inlets=[arrived])
        claim >> PyTorchJobOperator(
            task_id="train",
            name=f"retrain-{series}",
            image="training",
            args=[f"--series={series}", "--run={{ run_id }}", f"--new={new}", f"--data={claimed % 'paths'}"],
            env={"WORK": "/claim", "STORE": {"secret": "store", "key": "options"}},
            volumes=["runs:/claim"],
            model="/claim/models/{{ ti.dag_id }}/{{ run_id }}.pt",
            data_version=claimed % "version",
            ledger=ledger,
            deferrable=True,
            retries=0,
        )


for name, address in json.loads(os.environ["RETRAINING_SOURCES"]).items():
    retraining(name, address)
