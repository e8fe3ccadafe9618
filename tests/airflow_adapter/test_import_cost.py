"""Tests of the import cost of the operator: DAG files are parsed all day."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import ptjob_provider.airflow

CLIENTS = {"kubernetes", "kubernetes_asyncio", "kfp", "torch", "tensorboard", "openlineage"}
STORES = {"fsspec", "upath", "s3fs", "aiobotocore", "botocore", "boto3"}
"""File systems; Airflow's `DAG` loads some of them itself."""

LOADED = """
import json, sys
exec(sys.argv[1])
before = set(sys.modules)
exec(sys.argv[2])
print(json.dumps([sorted(sys.modules), sorted(set(sys.modules) - before)]))
"""
PARSED = """
import ptjob_provider.airflow.operators
from ptjob_provider.airflow.handover import OutputVolume
OutputVolume.of_task('train').short
from ptjob_provider.airflow import config
assert config.load_installation().change_pod is None
from ptjob_provider.retraining.triggers import DataArrivalTrigger
DataArrivalTrigger('s3://bucket/incoming', conn_id='store').serialize()
"""
"""What DAG files do: a task, an output that a pod mounts, an installation without a hook, a bucket that is watched."""


def printed(program: str, *arguments: str) -> Any:
    """Run a program in a new interpreter and return the last line that it prints, as JSON."""
    return json.loads(subprocess.check_output([sys.executable, "-c", program, *arguments]).splitlines()[-1])


def test_parsing_a_dag_file_loads_neither_a_client_nor_a_file_system() -> None:
    """Tasks and triggers load them on demand."""
    modules, ours = printed(LOADED, "from airflow.sdk import DAG", PARSED)

    assert not CLIENTS & {name.partition(".")[0] for name in modules}
    assert not STORES & {name.partition(".")[0] for name in ours}
    assert not [name for name in ours if name.startswith("airflow.providers.openlineage")]


def test_public_names_are_loaded_when_they_are_used() -> None:
    program = (
        "import json, sys, ptjob_provider.airflow as package; before = 'airflow' in sys.modules;"
        "print(json.dumps([before, {name: getattr(package, name).__name__ for name in package.__all__}]))"
    )

    assert printed(program) == [False, {name: name for name in ptjob_provider.airflow.__all__}]


def test_a_process_without_visitors_loads_no_web_framework() -> None:
    """Every process of Airflow loads the plugin."""
    modules, ours = printed(LOADED, "import airflow.plugins_manager", "import ptjob_provider.airflow.plugin")

    assert not {"fastapi", "starlette"} & {name.partition(".")[0] for name in modules}
    assert {name.partition(".")[0] for name in ours} == {"ptjob_provider"}
