"""DAGs that `test_dag_runs.py` runs with `dag.test()` in a separate process: `python small_dags.py NAME…`."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from ptjob_provider.airflow.compat import AIRFLOW
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.airflow.sensors import PyTorchJobSensor

SEEN = Path(os.environ["SEEN"])
TRAINS = """
import os, pathlib, sys
for number in range(3):
    print(f"rank {os.environ['RANK']} line {number}", flush=True)
    print(f"step {number + 1}/3 loss={0.5 ** number}", flush=True)
model = pathlib.Path(os.environ["PTJOB_MODEL_PATH"])
if os.environ["RANK"] == "0":
    model.parent.mkdir(parents=True, exist_ok=True)
    model.write_text("m" * int(sys.argv[1]))
"""
FIELDS: dict[str, Any] = {
    "image": "digits",
    "command": ["python", "-c", TRAINS],
    "model": "pvc://models/{{ task.task_id }}-{{ ti.map_index }}.pt",
}


@task
def keep(name: str, result: Any) -> None:
    """Write the value that a downstream task receives to a file."""
    SEEN.joinpath(f"{name}.json").write_text(json.dumps(result))


with DAG("plain", schedule=None):
    trained = PyTorchJobOperator(task_id="train_it", args=["5"], deferrable=False, **FIELDS)
    keep("plain", trained.output)
    keep("plain.progress", trained.output["progress"])

with DAG("deferred", schedule=None):
    trained = PyTorchJobOperator(task_id="train_it", args=["{{ 3 + 3 }}"], deferrable=True, **FIELDS)
    keep("deferred", trained.output)
    keep("deferred.progress", trained.output["progress"])

with DAG("sensed_deferred", schedule=None):
    started = PyTorchJobOperator(
        task_id="start_it",
        name="somebody",
        exact_name=True,
        wait_for_completion=False,
        args=["9"],
        **FIELDS,
    )
    seen = PyTorchJobSensor(task_id="see_it", job_name="somebody", poke_interval=0.2, deferrable=True)
    started >> seen
    keep("sensed_deferred", seen.output)
    keep("sensed_deferred.progress", seen.output["progress"])


def main(names: list[str]) -> None:
    """Run the named DAGs one after the other and write each run's final state next to the files of its tasks."""
    dags = {each.dag_id: each for each in DagBag(dag_folder=__file__).dags.values()}
    for dag_id in names:
        sys.stdout.write(f"=== {dag_id}\n")
        run = dags[dag_id].test()
        SEEN.joinpath(f"{dag_id}.state").write_text(run.state)
    sys.stdout.write("=== end, where Airflow may complain of its database\n")


if __name__ == "__main__":
    DagBag = import_module("airflow.dag_processing.dagbag" if AIRFLOW >= (3, 2) else "airflow.models.dagbag").DagBag

    main(sys.argv[1:])
