"""A finished step's model for the next step, where it is handed on by reference: the claim is mounted in the consumer.

    evaluate = evaluate_op(path=model_path(train))
    mount_model(evaluate, train)

A component in an image with this package reads it as a file wherever it runs: `mounted.find_output(model.uri)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp import kubernetes

from ptjob_provider.core.handover import MOUNT_ROOT
from ptjob_provider.kfp.mounted import VOLUME

if TYPE_CHECKING:
    from kfp import dsl


def mount_model(task: dsl.PipelineTask, train: dsl.PipelineTask) -> dsl.PipelineTask:
    """Mount the claim of a step's model in another task, and return that task.

    Args:
        task: the consumer, in the namespace of the claim.
        train: what `pytorchjob_op` returned. Inside `dsl.If` and loops, when `train` is outside, this takes
            kfp-kubernetes 2.17; with 2.16 use `mount_claim`.
    """
    return mount_claim(task, train.outputs["model_claim"])


def model_path(train: dsl.PipelineTask) -> str:
    """Return where a task that `mount_model` was called for sees the model, for its arguments."""
    return f"{MOUNT_ROOT}/{VOLUME}/{train.outputs['model_path']}"


def mount_claim(task: dsl.PipelineTask, claim: Any) -> dsl.PipelineTask:
    """Mount a claim where a step looks for the model, and return the task; its name may be a pipeline's value."""
    kubernetes.mount_pvc(task, pvc_name=claim, mount_path=f"{MOUNT_ROOT}/{VOLUME}")
    return task
