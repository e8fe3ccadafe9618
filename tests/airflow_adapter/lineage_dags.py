"""Runs that `test_lineage_runs.py` makes with `dag.test()` where the openlineage provider is installed."""

from __future__ import annotations

import os
import sys

from airflow.sdk import DAG, Asset

from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.retraining.operators import ClaimBatchesOperator, DataLedger
from ptjob_provider.retraining.reservations import Batch

LEDGER = DataLedger(f"sqlite:///{os.environ['AIRFLOW_HOME']}/ledger.db", "digits")
TRAINS = """
import os, pathlib, sys
if sys.argv[1] == "fail":
    sys.exit(3)
model = pathlib.Path(os.environ["PTJOB_MODEL_PATH"])
model.parent.mkdir(parents=True, exist_ok=True)
model.write_text("model")
"""

with DAG("train_ol", schedule=None, params={"what": "succeed"}) as dag:
    claim = ClaimBatchesOperator(task_id="claim", ledger=LEDGER, training_task_id="in_worker")
    fields = {
        "image": "digits",
        "command": ["python", "-c", TRAINS],
        "args": ["{{ params.what }}"],
        "ledger": LEDGER,
        "inlets": [Asset("held-out", uri="s3://bucket/held-out")],
        "data_version": "{{ ti.xcom_pull('claim')['version'] }}",
        "model": "pvc://models/{{ ti.task_id }}/model.pt",
    }
    in_worker = PyTorchJobOperator(task_id="in_worker", deferrable=False, **fields)
    in_triggerer = PyTorchJobOperator(task_id="in_triggerer", deferrable=True, **fields)
    claim >> in_worker >> in_triggerer


if __name__ == "__main__":
    with LEDGER.open() as store:
        store.record([Batch(id=f"b{number}@1", uri=f"s3://bucket/incoming/b{number}") for number in range(3)])
    failed = dag.test(run_conf={"what": "fail"})
    succeeded = dag.test(run_conf={"what": "succeed"})
    sys.exit((failed.state, succeeded.state) != ("failed", "success"))
