"""DAGs that `test_dag_runs.py` runs with `dag.test()` in a separate process: `python small_dags.py NAME…`."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task
from kubernetes import client as k8s

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

for deferrable in (False, True):
    name = "sensed_deferred" if deferrable else "sensed"
    with DAG(name, schedule=None):
        job = f"somebody-{name.replace('_', '-')}"
        started = PyTorchJobOperator(
            task_id="start_it",
            name=job,
            exact_name=True,
            wait_for_completion=False,
            args=["9"],
            **FIELDS,
        )
        seen = PyTorchJobSensor(task_id="see_it", job_name=job, poke_interval=0.2, deferrable=deferrable)
        started >> seen
        keep(name, seen.output)
        keep(f"{name}.progress", seen.output["progress"])

with DAG("objects", schedule=None):
    hello = "import os, sys; print(*(f'{name}={os.environ.get(name)}' for name in sys.argv[1:]))"
    PyTorchJobOperator(
        task_id="train_it",
        image="digits",
        cmds=["python", "-c", hello],
        arguments=["DAY", "PLAIN", "HOOKED", "BELOW"],
        env_vars=[k8s.V1EnvVar(name="DAY", value="day {{ 3 + 4 }}"), k8s.V1EnvVar(name="PLAIN", value="5")],
        pod_template=k8s.V1PodTemplateSpec(
            spec=k8s.V1PodSpec(
                containers=[k8s.V1Container(name="base", env=[k8s.V1EnvVar(name="BELOW", value="{{ task.task_id }}")])]
            )
        ),
    )


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
