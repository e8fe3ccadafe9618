"""Pipelines as a cluster gets them: compiled, and what arrives in a step's function of what was compiled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml
from kfp import compiler, dsl

from ptjob_provider.kfp.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

IDS = {"pipeline_run_id": "run-1", "pipeline_task_name": "pytorchjob", "pipeline_task_id": "7"}


def compile_pipeline(define: Callable[..., Any], folder: Path) -> dict[str, Any]:
    """Compile a pipeline and return its specification; the platform's part is below `platforms`."""
    file = folder / "pipeline.yaml"
    compiler.Compiler().compile(dsl.pipeline(name="test")(define), str(file))
    first, *more = yaml.safe_load_all(file.read_text())
    return {**first, "platforms": more[0]["platforms"] if more else {}}


def inputs(pipeline: Mapping[str, Any], task: str = "pytorchjob") -> dict[str, Any]:
    """Return a task's inputs as it gets them: numbers are floats, and constants are what they are."""
    given = pipeline["root"]["dag"]["tasks"][task]["inputs"]["parameters"]
    constants = {name: each["runtimeValue"]["constant"] for name, each in given.items() if "runtimeValue" in each}
    arrived: dict[str, Any] = json.loads(json.dumps(constants), parse_int=float)
    return arrived


def request(pipeline: Mapping[str, Any], **more: Any) -> Request:
    """Return what the step of a compiled pipeline is asked for."""
    return Request.parse({**inputs(pipeline), **IDS, **more})
