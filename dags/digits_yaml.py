"""Train with a PyTorchJob that exists as YAML.

`digits.yaml`, next to this file, is a manifest as for `kubectl create -f`. It is submitted unchanged, except for
additions that are needed to find the job and its outputs. Fields that this package does not know are kept. The file is
a Jinja template, like any argument.

To adapt it: put your manifest next to your DAG file, and declare its outputs with `model` and `tfevents`, as an address
`pvc://claim/path` or as a path in the program's pod. A typed argument next to `manifest`, such as `workers=4`,
overrides that part of the manifest.
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
        """Print the model's address, and the last point of every curve."""
        print(f"model {trained['model']['uri']}, sha256 {trained['model']['sha256']}")
        for tag, value in trained["tfevents"]["scalars"].items():
            print(f"{tag} = {value:.4f} after step {trained['tfevents']['last_step']}")

    report(train.output)

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
