"""Train on handwritten digits every day, evaluate the model, and report.

The training is a PyTorchJob of two pods that share their gradients. The evaluation is another job with a single pod, so
this file runs unchanged on a cluster, or on one machine with `[ptjob] backend = local`.

To adapt it:

- `IMAGE`: your training image; here it is built from `docker/digits`. Its program reads its output paths from the
  variables PTJOB_MODEL_PATH, PTJOB_TFEVENTS_DIR and PTJOB_CHECKPOINT_DIR, or from arguments.
- `VOLUMES`: your claim and its mount path; `model`, `tfevents` and `checkpoints` are paths below it.
- `workers` counts pods, rank 0 included. On GPUs: `gpus=1` and the argument `--backend=nccl`.

`python digits.py` runs it once, without a scheduler, if the file is in the DAG folder.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, task

from ptjob_provider.airflow.operators import PyTorchJobOperator

IMAGE = "digits"
VOLUMES = ["digits:/data"]

with DAG(
    "digits",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    params={
        "image": Param(IMAGE, type="string"),
        "epochs": Param(12, type="integer", minimum=1),
        "lr": Param(0.003, type="number", exclusiveMinimum=0),
        "workers": Param(2, type="integer", minimum=1),
    },
) as dag:
    train = PyTorchJobOperator(
        task_id="train",
        name="digits",
        image="{{ params.image }}",
        args=["--epochs={{ params.epochs }}", "--lr={{ params.lr }}"],
        workers="{{ params.workers }}",
        cpu="500m",
        memory="2Gi",
        volumes=VOLUMES,
        model="/data/models/{{ run_id }}/model.pt",
        tfevents="/data/logs/{{ run_id }}/train",
        checkpoints="/data/checkpoints/{{ run_id }}",
        retries=2,  # for failures that a retry can fix, such as a lost machine; resumes from the last checkpoint
    )

    evaluate = PyTorchJobOperator(
        task_id="evaluate",
        name="digits-evaluate",
        image="{{ params.image }}",
        command=["python", "evaluate.py"],
        args=["--model_path={{ ti.xcom_pull('train')['model']['container_path'] }}"],
        cpu="500m",
        memory="2Gi",
        volumes=VOLUMES,
        tfevents="/data/logs/{{ run_id }}/evaluate",
    )

    @task
    def report(trained: dict[str, Any], evaluated: dict[str, Any]) -> float:
        """Print the model's address and accuracy; return the accuracy."""
        model = trained["model"]
        accuracy: float = evaluated["tfevents"]["scalars"]["held_out/accuracy"]
        print(f"model {model['uri']}, {model['bytes']} bytes, sha256 {model['sha256']}")
        print(f"accuracy on held-out digits: {accuracy:.4f}")
        return accuracy

    train >> evaluate
    report(train.output, evaluate.output)

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
