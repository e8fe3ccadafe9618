"""Train with a PyTorchJob that somebody has written as YAML.

`digits.yaml`, beside this file, is a manifest as `kubectl create -f` takes it. It is submitted as it is; only what is
needed to find the job again, and its outputs, is added. Nothing that it says is lost, also fields that this package has
never heard of. The file is a Jinja template like any argument.

To make it yours: put your manifest beside your DAG file, and say with `model` and `tfevents` what it writes, as an
address `pvc://claim/path` or as the path that its program sees. A typed argument beside `manifest`, such as
`workers=4`, overrides that part of it.
"""

from __future__ import annotations

import sys
from typing import Any

from airflow.sdk import DAG, task

from ptjob_provider.airflow.operators import PyTorchJobOperator

with DAG("digits_yaml", schedule=None, doc_md=__doc__) as dag:
    train = PyTorchJobOperator(
        task_id="train",
        manifest="digits.yaml",
        model="/data/models/{{ run_id }}/model.pt",
        tfevents="pvc://digits/logs/{{ run_id }}/train",
    )

    @task
    def report(trained: dict[str, Any]) -> None:
        """Print where the model is, and the last point of every curve."""
        print(f"model {trained['model']['uri']}, sha256 {trained['model']['sha256']}")
        for tag, value in trained["tfevents"]["scalars"].items():
            print(f"{tag} = {value:.4f} after step {trained['tfevents']['last_step']}")

    report(train.output)

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
