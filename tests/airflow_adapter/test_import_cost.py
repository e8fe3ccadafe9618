"""Tests of the import cost of the operator: DAG files are parsed all day."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

import pytest

import ptjob_provider.airflow

MEASURE = """
import json, time
import psutil
began = time.process_time()
import airflow.sdk
theirs, before, began = time.process_time() - began, psutil.Process().memory_full_info().uss, time.process_time()
import ptjob_provider.airflow.operators
ours, grown = time.process_time() - began, psutil.Process().memory_full_info().uss - before
print(json.dumps([ours / theirs, grown]))
"""
RUNS = 5
SHARE, BYTES = 0.1, 10_000_000
CLIENTS = {"kubernetes", "kubernetes_asyncio", "kfp", "torch", "tensorboard", "openlineage"}
STORES = {"fsspec", "upath", "s3fs", "aiobotocore", "botocore", "boto3"}
"""File systems; Airflow's `DAG` loads some of them itself."""

LOADED = """
import json, sys
from airflow.sdk import DAG
before = set(sys.modules)
exec(sys.argv[1])
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
    modules, ours = printed(LOADED, PARSED)

    assert not CLIENTS & {name.partition(".")[0] for name in modules}
    assert not STORES & {name.partition(".")[0] for name in ours}
    assert not [name for name in ours if name.startswith("airflow.providers.openlineage")]


def test_public_names_are_loaded_when_they_are_used() -> None:
    program = (
        "import json, sys, ptjob_provider.airflow as package; before = 'airflow' in sys.modules;"
        "print(json.dumps([before, {name: getattr(package, name).__name__ for name in package.__all__}]))"
    )

    assert printed(program) == [False, {name: name for name in ptjob_provider.airflow.__all__}]


@pytest.mark.soak
def test_importing_the_operator_is_cheap() -> None:
    """At most a tenth of the CPU time of `airflow.sdk`, and 10 MB; medians of new interpreters."""
    shares, grown = zip(*(printed(MEASURE) for _ in range(RUNS)), strict=True)

    assert statistics.median(shares) <= SHARE
    assert statistics.median(grown) <= BYTES
