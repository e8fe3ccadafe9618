"""A DAG that `test_handover_on_cluster.py` runs with `dag.test()`: a job writes a model, a pod and a job read it."""

from __future__ import annotations

import os
import sys

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG

from ptjob_provider.airflow.handover import OutputVolume
from ptjob_provider.airflow.operators import PyTorchJobOperator

IMAGE, CLAIM = os.environ["IMAGE"], os.environ["CLAIM"]
WRITES = "import os; open(os.environ['PTJOB_MODEL_PATH'], 'w').write('these are the parameters')"
READS = "import sys; print(f'read in a job: {open(sys.argv[1]).read()}')"

with DAG("handover", schedule=None) as dag:
    train = PyTorchJobOperator(
        task_id="train", image=IMAGE, command=["python3", "-c", WRITES], volumes=[f"{CLAIM}:/data"], model="/data/7.pt"
    )
    model = OutputVolume.of_task(train)
    in_pod = KubernetesPodOperator(
        task_id="in_pod",
        image=IMAGE,
        cmds=["sh", "-c", 'echo "read in a pod: $(cat "$0")"; touch "$0" || echo "and it is read-only"'],
        arguments=[model.path],
        volumes=[model.volume],
        volume_mounts=[model.mount],
    )
    in_job = PyTorchJobOperator(
        task_id="in_job", image=IMAGE, command=["python3", "-c", READS], args=[model.path], volumes=[model.short]
    )
    train >> [in_pod, in_job]

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
