"""Tasks that Airflow tries again after an eviction; the run's conf has the pod's name and a script."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG
from kubernetes.client import models as k8s

CLAIM = k8s.V1PersistentVolumeClaimVolumeSource(claim_name="state")
DELAYS: dict[str, dict[str, Any]] = {"pod-1s": {"retry_delay": timedelta(seconds=1)}, "pod-5min": {}}

for dag_id, delay in DELAYS.items():
    with DAG(dag_id, schedule=None):
        KubernetesPodOperator(
            task_id="train",
            name="{{ dag_run.conf['name'] }}",
            image="docker.io/library/alpine:3.10",
            cmds=["sh", "-c"],
            arguments=["{{ dag_run.conf['script'] }}"],
            volumes=[k8s.V1Volume(name="state", persistent_volume_claim=CLAIM)],
            volume_mounts=[k8s.V1VolumeMount(name="state", mount_path="/state")],
            container_resources=k8s.V1ResourceRequirements(requests={"cpu": "10m", "memory": "32Mi"}),
            deferrable=True,
            retries=2,
            **delay,
        )
