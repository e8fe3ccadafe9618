"""A run reserves the batches that arrived, and trains a model on all data so far."""

from __future__ import annotations

import os

from airflow.sdk import DAG, Asset, AssetWatcher

from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.retraining.operators import ClaimBatchesOperator, DataLedger
from ptjob_provider.retraining.triggers import DataArrivalTrigger

POLL = float(os.environ["RETRAINING_POLL"])
TRIGGER = DataArrivalTrigger(os.environ["RETRAINING_SOURCE"], conn_id="store", poll_seconds=POLL)
ARRIVED = Asset("arrived", watchers=[AssetWatcher(name="drops", trigger=TRIGGER)])
LEDGER = DataLedger("ledger")
CLAIMED = "{{ ti.xcom_pull('claim')['%s'] }}"
NEW = "{{ ti.xcom_pull('claim')['new'] | join(',') }}"

with DAG("retrain", schedule=[ARRIVED], max_active_runs=1):
    claim = ClaimBatchesOperator(task_id="claim", ledger=LEDGER, inlets=[ARRIVED])
    claim >> PyTorchJobOperator(
        task_id="train",
        name="retrain",
        image="training",
        args=["--run={{ run_id }}", f"--new={NEW}", f"--data={CLAIMED % 'paths'}"],
        env={"WORK": "/claim", "STORE": {"secret": "store", "key": "options"}},
        volumes=["runs:/claim"],
        model="/claim/models/{{ run_id }}.pt",
        data_version=CLAIMED % "version",
        ledger=LEDGER,
        deferrable=True,
        retries=0,
    )
