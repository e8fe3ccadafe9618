"""Tests of the log, the result and the outputs of a deferred training on a cluster."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from airflow_cluster.conftest import PATIENCE
from task_run import TaskRun

if TYPE_CHECKING:
    from airflow_cluster.conftest import Lab


def test_a_deferred_training_is_read_line_by_line_and_hands_over_its_model(lab: Lab, runs: dict[str, TaskRun]) -> None:
    """The result also has the commit of the program's repository and the URL of the running TensorBoard."""
    task = runs["trained"]
    task.wait_for_line("epoch 2/2", timeout=PATIENCE)
    state = task.state
    ref = task.ref
    url = task.xcom("tensorboard_url")
    beside = lab.cluster.kubectl.get("service", f"{ref.name}-tensorboard", namespace=lab.namespace)
    lab.release(ref)

    assert task.wait(timeout=PATIENCE) == "success"
    assert state == "deferred"
    by_node, by_name = f":{beside['spec']['ports'][0]['nodePort']}/", f"//{ref.name}-tensorboard."
    assert url.startswith("http://")
    assert by_node in url or by_name in url  # the address within the cluster while the pod has no node
    result = task.xcom()
    assert result["job"] == ref.to_dict()
    assert result["phase"] == "Succeeded"
    assert result["tensorboard_url"] == url
    assert result["git_revision"] == lab.code.revision
    assert result["model"]["uri"] == "pvc://digits/models/7/model.pt"
    assert result["model"]["bytes"] > 100_000
    assert re.fullmatch(r"[0-9a-f]{64}", result["model"]["sha256"])
    assert 0 < result["tfevents"]["scalars"]["held_out/accuracy"] <= 1


def test_a_train_job_is_a_task_like_any_other(runs: dict[str, TaskRun]) -> None:
    task = runs["as-train-job"]

    assert task.wait(timeout=PATIENCE) == "success", task.text()
    result = task.xcom()
    assert "rank 0 of 2" in task.text()
    assert (result["job"]["kind"], result["phase"]) == ("TrainJob", "Succeeded")
    assert result["rank0"] == f"{result['job']['name']}-node-0-0"


def test_a_connection_in_the_database_serves_worker_and_triggerer(lab: Lab) -> None:
    """That of all other tasks is a variable of the environment."""
    extra = json.dumps({"kube_config_path": str(lab.kubeconfig), "namespace": lab.namespace})
    known = {"connection_id": "in_database", "conn_type": "kubernetes", "extra": extra}
    lab.stack.api.post("connections", known)

    task = lab.start("in-database")

    assert task.wait(timeout=PATIENCE) == "success", task.text()
    assert "trained" in task.lines()


def test_a_pod_task_and_a_job_task_read_the_model_from_the_claim(lab: Lab) -> None:
    """Runs the example of `dags/`: both tasks report the accuracy that the training reported."""
    conf = {"image": lab.image, "epochs": 2}
    run_id = lab.stack.api.trigger("digits_handover", conf)
    tasks = {name: TaskRun(lab.stack, "digits_handover", run_id, name) for name in ("train", "in_pod", "in_job")}

    states = {name: task.wait(timeout=PATIENCE) for name, task in tasks.items()}

    assert states == dict.fromkeys(tasks, "success"), "\n".join(task.text() for task in tasks.values())
    accuracies = {
        name: set(re.findall(r"held-out accuracy \S+ \(\d+ of 360\)", task.text())) for name, task in tasks.items()
    }
    assert len(accuracies["train"]) == 1
    assert accuracies["in_pod"] == accuracies["in_job"] == accuracies["train"]
