"""A model's way from a job to a KubernetesPodOperator and to another job, on the tests' cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_world import Tenant

if TYPE_CHECKING:
    from cluster.boot import Cluster

HERE = Path(__file__).parent
TIMEOUT = 300
"""Seconds for Airflow's database, a job, a pod and another job."""


def test_a_pod_and_a_job_read_the_model_that_a_job_wrote(
    cluster: Cluster, namespace: str, digits_image: str, tmp_path: Path
) -> None:
    """By the task's result alone: nobody but the training knows the claim's folder, and nobody else can write there."""
    Tenant(cluster, namespace).claim("models")
    (tmp_path / "dags").mkdir()
    dag = shutil.copy(HERE / "handover_dag.py", tmp_path / "dags")
    extra = {"kube_config_path": str(cluster.layout.kubeconfig), "namespace": namespace}
    outside = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env = outside | {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__PTJOB__BACKEND": "kubernetes",
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
        "IMAGE": digits_image,
        "CLAIM": "models",
    }
    airflow = Path(sys.executable).with_name("airflow")
    subprocess.run([airflow, "db", "migrate"], cwd=tmp_path, env=env, check=True, capture_output=True, timeout=TIMEOUT)

    ran = subprocess.run(
        [sys.executable, dag], cwd=tmp_path, env=env, check=False, capture_output=True, text=True, timeout=TIMEOUT
    )

    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    assert "read in a pod: these are the parameters" in said
    assert "and it is read-only" in said
    assert "read in a job: these are the parameters" in said
