"""Runs that `test_ledger_runs.py` makes one after the other with `dag.test()` in a separate process.

Batches arrive as asset events; each training writes its arguments and the data that it read to a file.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, AssetAlias, task

from ptjob_provider.airflow.compat import AIRFLOW
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.retraining.operators import ClaimBatchesOperator, DataLedger

SEEN = Path(os.environ["SEEN"])
ARRIVED, MODEL, MODELS = Asset("arrived"), Asset("model"), AssetAlias("models")
LEDGER = DataLedger("ledger_db", "digits")
TRAINS = """
import json, os, pathlib, sys
run, data, version = sys.argv[1:]
pathlib.Path(os.environ["PTJOB_MODEL_PATH"]).write_text("m")
fails = pathlib.Path(os.environ["SEEN"], "fail")
if fails.exists():
    sys.exit("told to fail after the model was written")
pathlib.Path(os.environ["SEEN"], f"{run}.read").write_text(json.dumps([data.split(","), version]))
"""

with DAG("arrive", schedule=None):

    @task(outlets=[ARRIVED])
    def drop(*, outlet_events: Any, params: Any) -> None:
        """Announce batches in the form of a watcher's event."""
        batches = [{"id": f"{name}@1", "uri": name, "files": 1, "bytes": 10} for name in params["names"]]
        outlet_events[ARRIVED].extra.update({"from_trigger": True, "payload": {"batches": batches}})

    drop()

with DAG("retrain", schedule=[ARRIVED], max_active_runs=1):
    claim = ClaimBatchesOperator(task_id="claim", ledger=LEDGER, inlets=[ARRIVED])
    train = PyTorchJobOperator(
        task_id="train",
        image="digits",
        ledger=LEDGER,
        command=["python", "-c", TRAINS],
        args=["{{ run_id }}", "{{ ti.xcom_pull('claim')['paths'] }}", "{{ ti.xcom_pull('claim')['version'] }}"],
        env={"SEEN": str(SEEN)},
        model="pvc://models/{{ run_id }}.pt",
        data_version="{{ ti.xcom_pull('claim')['version'] }}",
        outlets=[MODEL, MODELS],
    )
    claim >> train

with DAG("consume", schedule=[MODEL]):

    @task(inlets=[MODEL, MODELS])
    def read(*, inlet_events: Any) -> None:
        """Write the newest events to a file, without code of this provider."""
        newest = {"asset": inlet_events[MODEL][-1], "alias": inlet_events[MODELS][-1]}
        found = {name: {"uri": event.asset.uri, "extra": event.extra} for name, event in newest.items()}
        SEEN.joinpath("consumed.json").write_text(json.dumps(found))

    read()


def arrive(*names: str) -> None:
    """Create one event that announces these batches."""
    dags["arrive"].test(run_conf={"names": names})


def retrain(name: str, *, fails: bool = False) -> None:
    """Run the `retrain` DAG and write the final states to the file of this name."""
    marker = SEEN / "fail"
    marker.touch() if fails else marker.unlink(missing_ok=True)
    sys.stdout.write(f"=== {name}\n")
    run = dags["retrain"].test()
    tasks = {each.task_id: each for each in run.get_task_instances()}
    states = [str(tasks[task_id].state) for task_id in ("claim", "train")]
    handover = tasks["claim"].xcom_pull(task_ids="claim")
    SEEN.joinpath(f"{name}.json").write_text(json.dumps({"run_id": run.run_id, "states": states, "handover": handover}))


def main() -> None:
    """Make the runs that `test_ledger_runs.py` checks."""
    retrain("nothing")
    arrive("b1", "b2")
    retrain("first")
    retrain("again")
    arrive("b3")
    arrive("b4", "b1")
    retrain("fails", fails=True)
    arrive("b5")
    retrain("after")
    dags["consume"].test()


if __name__ == "__main__":
    DagBag = import_module("airflow.dag_processing.dagbag" if AIRFLOW >= (3, 2) else "airflow.models.dagbag").DagBag

    dags = {each.dag_id: each for each in DagBag(dag_folder=__file__).dags.values()}
    main()
