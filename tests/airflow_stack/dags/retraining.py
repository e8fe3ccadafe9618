"""DAGs that train when data arrives, each with its own data and ledger.

Files in the claim control a training: it waits for `NAME.go`, and fails if `NAME.fail` exists.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, task

from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.retraining.operators import ClaimBatchesOperator, DataLedger

NAMES = ("cleared", "deleted")
TRAINS = """
import json, os, pathlib, sys, time
name, run, data = sys.argv[1:4]
work = pathlib.Path(os.environ["WORK"])
while not (work / f"{name}.go").exists():
    time.sleep(0.1)
pathlib.Path(os.environ["PTJOB_MODEL_PATH"]).write_text("weights")
if (work / f"{name}.fail").exists():
    sys.exit(3)
"""


def retraining(name: str) -> None:
    """Define the DAG that announces data and the DAG that trains on it."""
    arrived, ledger = Asset(f"{name}-arrived"), DataLedger("ledger", name)
    claimed = "{{ ti.xcom_pull('claim')['%s'] }}"
    fields: dict[str, Any] = {
        "task_id": "train",
        "image": "program",
        "command": ["python", "-c", TRAINS],
        "volumes": ["runs:/claim"],
        "env": {"WORK": "/claim"},
        "ledger": ledger,
        "data_version": claimed % "version",
        "deferrable": False,
    }
    words = [name, "{{ run_id }}", claimed % "paths"]

    with DAG(f"{name}_arrive", schedule=None):

        @task(outlets=[arrived])
        def tell(*, outlet_events: Any, dag_run: Any) -> None:
            batches = [{"id": f"{each}@1", "uri": each} for each in dag_run.conf["names"]]
            outlet_events[arrived].extra["batches"] = batches

        tell()

    with DAG(f"{name}_retrain", schedule=[arrived], max_active_runs=1):
        claim = ClaimBatchesOperator(task_id="claim", ledger=ledger, inlets=[arrived])
        claim >> PyTorchJobOperator(**fields, args=words, model="/claim/{{ run_id }}.pt")


for each in NAMES:
    retraining(each)
