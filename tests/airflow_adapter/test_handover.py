"""Tests of a job's output in a KubernetesPodOperator: the rendered fields and the resulting pod."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG

from ptjob_provider.airflow.handover import OutputVolume
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Mapping

RESULTS: Mapping[str, Any] = {
    "train": {"model": {"uri": "pvc://digits/models/run 1/model.pt"}, "tfevents": {"uri": "pvc://logs/run 1"}},
    "group.Train_2": {"model": {"uri": "pvc://digits.v2/7.pt"}, "tfevents": None},
}
CONTEXT = {
    "ti": SimpleNamespace(xcom_pull=lambda task_ids: RESULTS[task_ids]),
    "dag_run": SimpleNamespace(conf={"model": "pvc://given/by hand.pt"}),
}


def pod_of(*outputs: OutputVolume, native: bool = False) -> Any:
    """Return the pod that a KubernetesPodOperator builds from the outputs, with their paths as arguments."""
    with DAG("evaluation", schedule=None, render_template_as_native_obj=native):
        evaluate = KubernetesPodOperator(
            task_id="evaluate",
            namespace="team",
            image="digits",
            volumes=[output.volume for output in outputs],
            volume_mounts=[output.mount for output in outputs],
            arguments=[output.path for output in outputs],
        )
    evaluate.render_template_fields(CONTEXT)
    return evaluate.build_pod_request_obj(dry_run=True)


def claims_of(pod: Any) -> dict[str, tuple[str, bool]]:
    """Return the claim at each path of the pod's container, and whether it is read-only."""
    claims = {volume.name: volume.persistent_volume_claim.claim_name for volume in pod.spec.volumes}
    mounts = pod.spec.containers[0].volume_mounts
    return {mount.mount_path: (claims[mount.name], mount.read_only) for mount in mounts}


@pytest.mark.parametrize("native", [False, True])
def test_a_tasks_outputs_are_mounted_read_only_where_the_arguments_say(native: bool) -> None:  # noqa: FBT001 - a case
    """The address is known only when the pod's task runs; text and native rendering give the same pod."""
    train = PyTorchJobOperator(task_id="train", image="digits")

    pod = pod_of(OutputVolume.of_task(train), OutputVolume.of_task("train", "tfevents"), native=native)

    assert claims_of(pod) == {
        "/mnt/outputs/train-model": ("digits", True),
        "/mnt/outputs/train-tfevents": ("logs", True),
    }
    assert pod.spec.containers[0].args == [
        "/mnt/outputs/train-model/models/run 1/model.pt",
        "/mnt/outputs/train-tfevents/run 1",
    ]


def test_models_of_two_tasks_are_compared_in_one_pod() -> None:
    """Each output has its own volume, also in a task group and with equal kinds of claims."""
    pod = pod_of(OutputVolume.of_task("train"), OutputVolume.of_task("group.Train_2"))

    assert claims_of(pod) == {
        "/mnt/outputs/train-model": ("digits", True),
        "/mnt/outputs/group-train-2-model": ("digits.v2", True),
    }


def test_an_address_can_come_from_any_template() -> None:
    model = OutputVolume("{{ dag_run.conf['model'] }}", name="champion")

    pod = pod_of(model)

    assert claims_of(pod) == {"/mnt/outputs/champion": ("given", True)}
    assert pod.spec.containers[0].args == ["/mnt/outputs/champion/by hand.pt"]


def test_an_output_volume_of_an_invalid_address_is_refused_when_the_dag_is_read() -> None:
    """Not hours later, when the pod starts."""
    with pytest.raises(InvalidSpec, match=r"uri: '/data/model.pt' is not allowed; allowed: pvc://claim/path"):
        OutputVolume("/data/model.pt")


def test_a_second_run_in_the_same_process_renders_anew() -> None:
    """The operator changes the objects that it is given; each run gets new ones."""
    model = OutputVolume.of_task("train")

    first, second = pod_of(model), pod_of(model)

    assert claims_of(first) == claims_of(second)
    assert "{{" in model.volume.persistent_volume_claim.claim_name


def test_a_job_mounts_the_output_by_the_short_form() -> None:
    model = OutputVolume.of_task("train")
    evaluate = PyTorchJobOperator(task_id="evaluate", image="digits", volumes=[model.short], args=[model.path])

    evaluate.render_template_fields(CONTEXT)
    fields = {name: getattr(evaluate, name) for name in ("volumes", "args")}
    job = TrainingJob.parse(name="evaluate", image="digits", **fields)

    (mount,) = job.volumes or ()
    assert (mount.claim, mount.mount_path, mount.read_only) == ("digits", "/mnt/outputs/train-model", True)
    assert job.args == ("/mnt/outputs/train-model/models/run 1/model.pt",)
