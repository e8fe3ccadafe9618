"""Retrain on handwritten digits whenever data arrives, and promote the model if it is better than the champion.

A watcher starts a run when data arrives. The run reserves every batch that no successful training has used as new data,
and trains on all data so far, starting from the champion. Both models are compared on digits that are in no batch, and
the better one becomes the champion. `digits_champion.py` is an example of a consumer; `digits_rollback.py` restores an
earlier champion.

Before you unpause it, create a database for the ledger: the connection `digits_ledger` to PostgreSQL, or, on one
machine, to SQLite: AIRFLOW_CONN_DIGITS_LEDGER='{"conn_type": "sqlite", "host": "/srv/digits/ledger.db"}'.

To adapt it:

- `INCOMING`: the address where data arrives, valid for the triggerer and the training: a bucket
  (`s3://bucket/incoming`, with `conn_id=` for the trigger and `env_from=[{"secret": …}]` for the training), or a
  directory that both mount at the same path. Here an environment variable sets it. For a claim that the triggerer does
  not mount, use `ClaimArrivalTrigger`; docs/tutorials/retraining.md shows the two lines to change.
- A batch is a folder of files, and complete when it contains the file `_SUCCESS`; the trigger's arguments change that.
- `LEDGER`: the connection, and a name; each series of models needs its own name.
- `IMAGE` and `VOLUMES` as in `digits.py`; models, checkpoints, curves and the champion are on that claim.
- `train`: your program and its arguments. It reads the batches that `--data` names, and only those.
- `MARGIN`: how much better a model's accuracy must be; with 0.002, one more correct image of the 360 here is enough.

`python digits_retraining.py` runs it once, without a scheduler, on the data that has arrived, if the file is in the DAG
folder.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import DAG, Asset, AssetWatcher, Param, task

from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.retraining.operators import ClaimBatchesOperator, DataLedger
from ptjob_provider.retraining.triggers import DataArrivalTrigger

INCOMING = os.environ.get("DIGITS_INCOMING", "/srv/digits/incoming")
LEDGER = DataLedger("digits_ledger", "digits")
IMAGE = "digits"
VOLUMES = ["digits:/data"]
MARGIN = 0.002

ARRIVED = Asset(
    "digits-incoming",
    watchers=[
        AssetWatcher(name="arrivals", trigger=DataArrivalTrigger(INCOMING, poll_seconds=10, settle_seconds=20)),
    ],
)
MODEL = Asset("digits-model")
CHAMPION = Asset("digits-champion")

with DAG(
    "digits_retraining",
    schedule=[ARRIVED],
    max_active_runs=1,
    doc_md=__doc__,
    params={
        "image": Param(IMAGE, type="string"),
        "epochs": Param(8, type="integer", minimum=1),
        "workers": Param(2, type="integer", minimum=1),
        "margin": Param(MARGIN, type="number", minimum=0, maximum=1),
    },
) as dag:
    claim = ClaimBatchesOperator(task_id="claim", ledger=LEDGER, inlets=[ARRIVED])

    train = PyTorchJobOperator(
        task_id="train",
        name="digits-retraining",
        image="{{ params.image }}",
        args=[
            "--data={{ ti.xcom_pull('claim')['paths'] }}",
            "--start_from=/data/champion",
            "--epochs={{ params.epochs }}",
        ],
        env={"PTJOB_DATA_VERSION": "{{ ti.xcom_pull('claim')['version'] }}"},
        workers="{{ params.workers }}",
        cpu=1,
        memory="2Gi",
        volumes=VOLUMES,
        model="/data/models/{{ run_id }}/model.pt",
        tfevents="/data/logs/{{ run_id }}/train",
        checkpoints="/data/checkpoints/{{ run_id }}/{{ ti.xcom_pull('claim')['version'] }}",
        ledger=LEDGER,
        data_version="{{ ti.xcom_pull('claim')['version'] }}",
        outlets=[MODEL],
        retries=2,  # for failures that a retry can fix, such as a lost machine; resumes from the last checkpoint
    )

    evaluate = PyTorchJobOperator(
        task_id="evaluate",
        name="digits-evaluate",
        image="{{ params.image }}",
        command=["python", "evaluate.py"],
        args=["--model_path={{ ti.xcom_pull('train')['model']['container_path'] }}"],
        cpu=1,
        memory="2Gi",
        volumes=VOLUMES,
        tfevents="/data/logs/{{ run_id }}/evaluate",
        retries=2,
    )

    promote = PyTorchJobOperator(
        task_id="promote",
        name="digits-promote",
        image="{{ params.image }}",
        command=["python", "promote.py"],
        args=[
            "--model_path={{ ti.xcom_pull('train')['model']['container_path'] }}",
            "--sha256={{ ti.xcom_pull('train')['model']['sha256'] }}",
            "--champion_dir=/data/champion",
            "--margin={{ params.margin }}",
        ],
        cpu=1,
        memory="2Gi",
        volumes=VOLUMES,
        tfevents="/data/logs/{{ run_id }}/promote",
        retries=2,
    )

    @task(outlets=[CHAMPION])
    def publish(
        claimed: dict[str, Any],
        trained: dict[str, Any],
        evaluated: dict[str, Any],
        promoted: dict[str, Any],
        *,
        outlet_events: Any = None,
    ) -> dict[str, Any]:
        """Announce the new champion to consumers; a run whose model was refused ends here."""
        scalars = promoted["tfevents"]["scalars"]
        accuracy = evaluated["tfevents"]["scalars"]["held_out/accuracy"]
        generation = int(scalars["promotion/generation"])
        if not scalars["promotion/promoted"]:
            raise AirflowSkipException(f"accuracy {accuracy:.4f}: refused, champion {generation} stays")
        sha256 = trained["model"]["sha256"]
        champion = {
            "generation": generation,
            "accuracy": accuracy,
            "model": {"uri": f"pvc://digits/champion/models/{sha256[:16]}/model.pt", "sha256": sha256},
            "data_version": claimed["version"],
            "batches": claimed["batches"],
        }
        outlet_events[CHAMPION].extra.update(champion)
        print(f"champion {generation}: accuracy {accuracy:.4f}, {champion['model']['uri']}")
        return champion

    claim >> train >> evaluate >> promote
    publish(claim.output, train.output, evaluate.output, promote.output)

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
