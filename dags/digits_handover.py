"""Train on a cluster, then read the model in a KubernetesPodOperator task and in another job.

`OutputVolume` makes the model that `train` has declared and verified the volume, the mount and the path of a pod, so
that only `train` knows claim and folder. The claim is mounted read-only; one that a single node may use at a time
(ReadWriteOnce) brings the readers to the node of the training.

This needs a cluster: a pod task runs nowhere else. `digits.py` evaluates in a job alone, and runs anywhere.

To make it yours:

- `IMAGE`: your training image, here the one of `docker/digits`, as the cluster can pull it.
- `VOLUMES`: your claim and where your program expects it; `model` is a path below that.
- `in_pod`: your image; `model.path` is where the model is, for its arguments or variables.

`python digits_handover.py` runs it once, without a scheduler, if it lies in the DAG folder.
"""

from __future__ import annotations

import sys

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG, Param

from ptjob_provider.airflow.handover import OutputVolume
from ptjob_provider.airflow.operators import PyTorchJobOperator

IMAGE = "digits"
VOLUMES = ["digits:/data"]

with DAG(
    "digits_handover",
    schedule=None,
    doc_md=__doc__,
    params={"image": Param(IMAGE, type="string"), "epochs": Param(12, type="integer", minimum=1)},
) as dag:
    train = PyTorchJobOperator(
        task_id="train",
        name="digits-handover",
        image="{{ params.image }}",
        args=["--epochs={{ params.epochs }}"],
        volumes=VOLUMES,
        model="/data/models/{{ run_id }}/model.pt",
    )

    model = OutputVolume.of_task(train, "model")

    in_pod = KubernetesPodOperator(
        task_id="in_pod",
        name="digits-in-pod",
        image="{{ params.image }}",
        cmds=["python", "evaluate.py"],
        arguments=["--model_path", model.path],
        volumes=[model.volume],
        volume_mounts=[model.mount],
    )

    in_job = PyTorchJobOperator(
        task_id="in_job",
        name="digits-in-job",
        image="{{ params.image }}",
        command=["python", "evaluate.py"],
        args=["--model_path", model.path],
        volumes=[model.short],
    )

    train >> [in_pod, in_job]

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
