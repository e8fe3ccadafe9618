"""A DAG whose one task runs the manifest of a guide; run with `dag.test()` in a separate process."""

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
    """Save the result that a downstream task receives."""
    Path(os.environ["SEEN"], "result.json").write_text(json.dumps(result))


with DAG("guide", schedule=None) as dag:
    keep(PyTorchJobOperator(task_id="train", deferrable=False, **FIELDS).output)

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
