"""What a DAG file pays for the operator: it is parsed all day."""

from __future__ import annotations

import ast
import json
import statistics
import subprocess
import sys
from typing import Any

import pytest

import ptjob_provider.airflow

MEASURE = """
import json, sys, time
import psutil
began = time.process_time()
import airflow.sdk
theirs, before, began = time.process_time() - began, psutil.Process().memory_full_info().uss, time.process_time()
import ptjob_provider.airflow.operators
ours, grown = time.process_time() - began, psutil.Process().memory_full_info().uss - before
print(json.dumps([ours / theirs, grown, sorted(sys.modules)]))
"""
RUNS = 5
SHARE, BYTES = 0.1, 10_000_000
HEAVY = {"kubernetes", "kubernetes_asyncio", "kfp", "torch", "tensorboard"}
STORES = {"fsspec", "upath", "s3fs", "aiobotocore", "botocore", "boto3"}
WATCH = """
import sys
from airflow.sdk import DAG
before = set(sys.modules)
from ptjob_provider.retraining.triggers import DataArrivalTrigger
DataArrivalTrigger("s3://bucket/incoming", conn_id="store").serialize()
print(sorted(set(sys.modules) - before))
"""


def measured() -> list[Any]:
    return list(json.loads(subprocess.check_output([sys.executable, "-c", MEASURE]).splitlines()[-1]))


def test_importing_the_operator_loads_no_client() -> None:
    _, _, modules = measured()

    assert not HEAVY & {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("name", ptjob_provider.airflow.__all__)
def test_a_public_name_is_loaded_when_it_is_used(name: str) -> None:
    """The package itself costs a DAG file nothing."""
    program = f"import sys, ptjob_provider.airflow as a; print('airflow' in sys.modules, a.{name}.__name__ == {name!r})"

    assert subprocess.check_output([sys.executable, "-c", program], text=True).split()[-2:] == ["False", "True"]


@pytest.mark.soak
def test_importing_the_operator_is_cheap() -> None:
    """At most a tenth of the computing time that `airflow.sdk` takes, and 10 MB; medians of fresh interpreters."""
    shares, grown, _ = zip(*(measured() for _ in range(RUNS)), strict=True)

    assert statistics.median(shares) <= SHARE
    assert statistics.median(grown) <= BYTES


def test_a_dag_file_that_watches_a_bucket_loads_no_file_system() -> None:
    """None that Airflow's `DAG` had not loaded. The triggerer does, in a thread; a DAG file is parsed all day."""
    loaded = ast.literal_eval(subprocess.check_output([sys.executable, "-c", WATCH], text=True).splitlines()[-1])

    assert "ptjob_provider.retraining.triggers" in loaded
    assert not (HEAVY | STORES) & {name.partition(".")[0] for name in loaded}
