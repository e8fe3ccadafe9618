"""Passes a finished step's model to the next step by reference: mounts its claim in the consumer.

    evaluate = evaluate_op(path=model_path(train))
    mount_model(evaluate, train)

A component in an image with this package finds the model by `claim_paths.find_output(model)`, also on one machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp import kubernetes
from kfp.dsl.pipeline_channel import PipelineChannel

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.kfp.claim_paths import mount_path, mount_path_of_value
from ptjob_provider.kfp.component import claim_of_model

if TYPE_CHECKING:
    from kfp import dsl


def mount_model(task: dsl.PipelineTask, train: dsl.PipelineTask) -> dsl.PipelineTask:
    """Mount the claim of a step's model in another task, and return that task.

    One task can mount the models of several steps: each claim has its own path, see `mount_claim`.

    Args:
        task: the consumer, in the namespace of the claim. For a `pytorchjob_op`, the job's pods mount it.
        train: return value of `pytorchjob_op`. If the claim is only known when the pipeline runs, and `train` is
            outside of a `dsl.If` or loop around the task, this requires kfp-kubernetes 2.17; with 2.16 use
            `mount_claim`.
    """
    return mount_claim(task, _claim(train))


def model_path(train: dsl.PipelineTask) -> str:
    """Return the model's path in a task prepared by `mount_model`, for the task's arguments."""
    return f"{_mount_path(_claim(train))}/{train.outputs['model_path']}"


def mount_claim(task: dsl.PipelineTask, claim: Any) -> dsl.PipelineTask:
    """Mount a claim at `/mnt/outputs/CLAIM`, where `find_output` looks, and return the task.

    Args:
        task: the task. If it must run as the owner of the files, see `kubernetes.set_security_context`.
        claim: the claim's name. If it is a pipeline value, CLAIM in the path is the name of that value.
    """
    path = _mount_path(claim)
    mounts = task.platform_config.get("kubernetes", {}).get("pvcMount", [])
    if path not in {mount["mountPath"] for mount in mounts}:
        kubernetes.mount_pvc(task, pvc_name=claim, mount_path=path)
    return task


def _claim(train: dsl.PipelineTask) -> Any:
    """Return the claim's name, or the step's output `model_claim` if the name is unknown at compile time."""
    try:
        return claim_of_model(train.inputs)
    except InvalidSpec:
        return train.outputs["model_claim"]


def _mount_path(claim: Any) -> str:
    if not isinstance(claim, PipelineChannel):
        return mount_path(claim)
    return mount_path_of_value("-".join(filter(None, (claim.task_name, claim.name))))
