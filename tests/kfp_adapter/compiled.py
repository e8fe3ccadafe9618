"""Compile pipelines, and parse the inputs that a step receives from a compiled pipeline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml
from kfp import compiler, dsl

from kfp_cluster.in_pod.launcher_stand_in import compiled
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.spec import Installation
from ptjob_provider.kfp.request import Request
from same_fields import OWNER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kfp_adapter.driver_stand_in import Driven
    from ptjob_provider.core.spec import TrainingJob

IDS = {"pipeline_run_id": "run-1", "pipeline_task_name": "pytorchjob", "pipeline_task_id": "7"}


def compile_pipeline(define: Callable[..., Any], folder: Path) -> dict[str, Any]:
    """Compile a pipeline and return its specification, with the platform-specific part under `platforms`."""
    file = folder / "pipeline.yaml"
    compiler.Compiler().compile(dsl.pipeline(name="test")(define), str(file))
    return load_pipeline(file)


def load_pipeline(file: Path) -> dict[str, Any]:
    """Return the specification in a compiled file, in the same form as `compile_pipeline`."""
    first, *more = yaml.safe_load_all(file.read_text())
    return {**first, "platforms": more[0]["platforms"] if more else {}}


def inputs(pipeline: Mapping[str, Any], task: str = "pytorchjob") -> dict[str, Any]:
    """Return the constant inputs of a task as the step receives them: every number is a float."""
    given = pipeline["root"]["dag"]["tasks"][task]["inputs"]["parameters"]
    constants = {name: each["runtimeValue"]["constant"] for name, each in given.items() if "runtimeValue" in each}
    arrived: dict[str, Any] = json.loads(json.dumps(constants), parse_int=float)
    return arrived


def request(pipeline: Mapping[str, Any], **more: Any) -> Request:
    """Return the request that the step of a compiled pipeline parses."""
    return Request.parse({**inputs(pipeline), **IDS, **more})


def arrived(driven: Driven) -> dict[str, Any]:
    """Return the inputs as the component's function receives them from the driver, the launcher and kfp's runtime."""
    _, text = compiled(["python", "{{$}}"], driven.executor_input())
    given: dict[str, Any] = json.loads(text)["inputs"]["parameterValues"]
    words = {"nodeSelector": "node_selector", "volumeMounts": "volume_mounts"}
    settings = {words.get(name, name): part for name, part in given.pop("task_config").items()}
    return {**given, "task_config": dsl.TaskConfig(**settings)}


def rank0(asked: Request, installation: TrainingJob | None = None) -> dict[str, Any]:
    """Return the pod spec of rank 0 of the job that a step submits."""
    template = Installation(template=asked.template(installation))
    manifest = PYTORCHJOB.render(asked.job, owner=OWNER, attempt=1, installation=template).manifest
    found: dict[str, Any] = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    return found
