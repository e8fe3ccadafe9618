"""Tests of mistakes in a DAG file that are found at parse time: the error names argument, value and allowed values."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, BaseOperator

from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.airflow.sensors import PyTorchJobSensor

IMAGE = {"image": "digits"}
MODEL = Asset("digits-model")
PYTORCHJOB = "apiVersion: kubeflow.org/v1\nkind: {}\nmetadata: {{name: digits}}\nspec: {{}}\n"
SECONDS = "a number of seconds above 0, or a timedelta"
ALWAYS = "or left out"

MISTAKES: tuple[tuple[dict[str, Any], str, str, str, str], ...] = (
    # arguments, path in the error, value, allowed values, nearest name
    # (only some of the job's fields: tests/core/test_spec.py has all)
    ({"wrkers": 2}, "wrkers", "2", "no such argument", "workers"),
    ({"frobnicate": 3}, "frobnicate", "3", "no such argument: its documentation lists all", ""),
    ({"elastic_policy": {"max_replicas": 2}, "workers": 3}, "workers", "3", "to 2 (`max_replicas`)", ""),
    ({"kind": "PyTorchJobs"}, "kind", "'PyTorchJobs'", "allowed: PyTorchJob, TrainJob", "PyTorchJob"),
    ({"kind": "TrainJob", "manifest": PYTORCHJOB.format("PyTorchJob")}, "kind", "'TrainJob'", "the manifest's", ""),
    ({"kind": "TrainJob", "gang": True, "model": "pvc://runs/{{ ds }}"}, "gang", "True", "podGroupPolicy says it", ""),
    ({"manifest": PYTORCHJOB.format("PyTorchJob"), "runtime": "mine"}, "runtime", "'mine'", "a PyTorchJob has no", ""),
    ({"wait_for_completion": False, "outlets": [MODEL]}, "wait_for_completion", "False", "True; its event has", ""),
    ({"deferrable": "False"}, "deferrable", "'False'", "True or False, without quotes", ""),
    ({"on_finish_action": "keep_pod"}, "on_finish_action", "'keep_pod'", "allowed: keep_job, delete_job", "keep_job"),
    ({"start_timeout": "20m"}, "start_timeout", "'20m'", SECONDS, ""),
    ({"progress": 5}, "progress", "5", "allowed: a regular expression of RE2 as a text", ""),
    ({"retry_on": ["out-of-memory"]}, "retry_on[0]", "'out-of-memory'", "a cause (", "out_of_memory"),
    ({"never_retry_on": OSError}, "never_retry_on", "<class 'OSError'>", "a list", ""),
    ({"kubernetes_conn_id": 7}, "kubernetes_conn_id", "7", "a text that is not empty", ""),
    ({"cmds": "python train.py"}, "cmds", "'python train.py'", 'a list such as ["python", "train.py"]', ""),
    ({"configmaps": [3]}, "configmaps[0].config_map", "3", "a text that is not empty", ""),
    ({"get_logs": False}, "get_logs", "False", f"allowed: True, {ALWAYS}; rank 0's log", ""),
    ({"hostname": "gpu-1"}, "hostname", "'gpu-1'", "put it into `pod_template`", ""),
)  # fmt: skip


def message(operator: type[BaseOperator], **arguments: Any) -> str:
    """Return the error message."""
    with pytest.raises((ValueError, TypeError)) as refused:
        operator(task_id="train", **arguments)
    return str(refused.value)


@pytest.mark.parametrize(("given", "path", "value", "allowed", "close"), MISTAKES)
def test_a_mistake_is_named(given: dict[str, Any], path: str, value: str, allowed: str, close: str) -> None:
    said = message(PyTorchJobOperator, **{**IMAGE, **given})

    assert said.startswith(f"{path}: {value}")
    assert allowed in said
    assert (f"did you mean {close}?" if close else "") in said


def test_a_field_that_the_installations_kind_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the source of the kind; a task's own kind, or its manifest's, wins over the setting."""
    monkeypatch.setenv("AIRFLOW__PTJOB__KIND", "TrainJob")

    said = message(PyTorchJobOperator, **IMAGE, restart_policy="Never")

    assert said.startswith("restart_policy: 'Never' is not allowed; a TrainJob has no place for it")
    assert said.endswith("; the kind is that of [ptjob] kind")
    assert PyTorchJobOperator(task_id="train", **IMAGE, restart_policy="Never", kind="PyTorchJob").kind == "PyTorchJob"
    assert PyTorchJobOperator(task_id="train", manifest="job.yaml", restart_policy="Never").manifest == "job.yaml"


@pytest.mark.parametrize(
    ("given", "path", "allowed"),
    [
        ({"job_name": "digits", "kind": "PytorchJobb"}, "kind: 'PytorchJobb'", "did you mean PyTorchJob?"),
        ({"job_name": " "}, "job_name: ' '", "a text that is not empty"),
        ({"job_name": "digits", "name_space": "team"}, "name_space: 'team'", "did you mean namespace?"),
        ({"job_name": "digits", "deferrable": "yes"}, "deferrable: 'yes'", "True or False"),
    ],
)
def test_a_mistake_of_the_sensor_is_named(given: dict[str, Any], path: str, allowed: str) -> None:
    said = message(PyTorchJobSensor, **given)

    assert said.startswith(path)
    assert allowed in said


@pytest.mark.parametrize(
    "given",
    [
        {"workers": "{{ params.workers }}", "command": "{{ params.command }}", "model": "{{ params.model }}"},
        {"workers": "{% if 1 %}2{% endif %}", "labels": {"team": "{{ params.team }}"}},
        {"image": "{{ params.image }}", "args": ["--day", "{{ ds }}"], "elastic_policy": {"max_replicas": 3}},
        {"image": None, "manifest": "jobs/digits.yaml"},
        {"kind": "{{ params.kind }}", "restart_policy": "Never", "runtime": "torch-cpu"},
        {"kind": "TrainJob", "working_dir": "/work", "code": {"git": "{{ params.repository }}"}, "runtime": "ours"},
        {"image": None, "manifest": Path("digits.yaml")},
        {"start_timeout": timedelta(minutes=30), "queue_timeout": 0.5, "in_cluster": "true"},
    ],
)
def test_arguments_from_templates_or_files_are_checked_when_the_task_runs(given: dict[str, Any]) -> None:
    assert PyTorchJobOperator(task_id="train", **{**IMAGE, **given}).task_id == "train"


def test_arguments_from_another_tasks_output_are_checked_when_the_task_runs() -> None:
    with DAG("training", schedule=None):
        first = PyTorchJobOperator(task_id="first", **IMAGE)
        seen: Any = first.output
        second = PyTorchJobOperator(
            task_id="second", **IMAGE, workers=seen["n"], args=["--from", seen["uri"]], env={"RATE": seen["rate"]}
        )

    assert second.upstream_task_ids == {"first"}


def test_a_dags_own_marks_of_templates_count() -> None:
    """`[[ … ]]`, where the DAG's author has chosen these."""
    marks = {"variable_start_string": "[[", "variable_end_string": "]]"}

    with DAG("training", schedule=None, jinja_environment_kwargs=marks):
        PyTorchJobOperator(task_id="train", image="digits", workers="[[ params.workers ]]")


def test_an_instance_of_a_mapped_task_is_checked_when_it_runs() -> None:
    """Its error is not retried and is in the XCom `diagnosis`."""
    with DAG("training", schedule=None) as dag:
        PyTorchJobOperator.partial(task_id="train", **IMAGE).expand(workers=[1, 0])
    mapped: Any = dag.task_dict["train"]

    assert mapped.unmap({"workers": 0}).workers == 0
