"""Train once per learning rate, in parallel, and select the model with the best accuracy.

`.partial(...)` has the arguments that all trainings share, and `.expand(...)` those that differ. Each training is a
separate job with its own retries, log and result.

To adapt it: expand over any field (`args`, `env`, `image`, `workers` …), or over an earlier task's return value. Use
`{{ ti.map_index }}` in paths where trainings must not overwrite each other's files.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, task

from ptjob_provider.airflow.operators import PyTorchJobOperator

if TYPE_CHECKING:
    from collections.abc import Iterable

IMAGE = "digits"
LEARNING_RATES = [0.0003, 0.003, 0.03]

with DAG(
    "digits_sweep",
    schedule=None,
    doc_md=__doc__,
    params={"image": Param(IMAGE, type="string"), "epochs": Param(4, type="integer", minimum=1)},
) as dag:
    train = PyTorchJobOperator.partial(
        task_id="train",
        name="digits-sweep",
        image="{{ params.image }}",
        workers=2,
        cpu=1,
        memory="2Gi",
        volumes=["digits:/data"],
        model="/data/models/{{ run_id }}/{{ ti.map_index }}/model.pt",
        tfevents="/data/logs/{{ run_id }}/{{ ti.map_index }}",
        map_index_template="{{ task.args[0] }}",
        max_active_tis_per_dagrun=2,
    ).expand(args=[[f"--lr={rate}", "--epochs={{ params.epochs }}"] for rate in LEARNING_RATES])

    @task
    def best(results: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Print the accuracy of every training; return the model of the best, whose accuracy is a number."""
        # The results are in the order of the expansion. `strict=True` would request one result too many, and Airflow
        # would log an error.
        trained = list(zip(LEARNING_RATES, results, strict=False))
        for rate, result in trained:
            print(f"learning rate {rate}: accuracy {accuracy(result):.4f}")
        trained = [pair for pair in trained if not math.isnan(accuracy(pair[1]))]
        if not trained:
            raise ValueError("the accuracy of no training is a number")
        rate, winner = max(trained, key=lambda pair: accuracy(pair[1]))
        print(f"best is {rate}: {winner['model']['uri']}")
        return dict(winner["model"])

    best(train.output)


def accuracy(result: dict[str, Any]) -> float:
    """Return the last accuracy of one training."""
    return float(result["tfevents"]["scalars"]["held_out/accuracy"])


if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
