"""Train on a cluster, then read the model in a KubernetesPodOperator task and in another job.

`OutputVolume` provides the volume, the mount and the path of the model that `train` has declared and verified, so that
only `train` names the claim and the folder. The claim is mounted read-only; if it is ReadWriteOnce, the readers run on
the training's node.

This needs a cluster, because pod tasks do not run elsewhere. `digits.py` evaluates in a job instead, and runs anywhere.

To adapt it:

- `IMAGE`: your training image, under a name that the cluster can pull; here it is built from `docker/digits`.
- `VOLUMES`: your claim and its mount path; `model` is a path below it.
- `in_pod`: your image; `model.path` is the model's path, for its arguments or variables.

`python digits_handover.py` runs it once, without a scheduler, if the file is in the DAG folder.
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
