"""A DAG whose one task is the manifest of a guide; run with `dag.test()`, in a process of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from ptjob_provider.airflow.operators import PyTorchJobOperator

FIELDS = json.loads(os.environ["FIELDS"])


@task
def keep(result: Any) -> None:
    """Write down what a downstream task gets."""
    Path(os.environ["SEEN"], "result.json").write_text(json.dumps(result))


with DAG("guide", schedule=None) as dag:
    keep(PyTorchJobOperator(task_id="train", deferrable=False, **FIELDS).output)

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
