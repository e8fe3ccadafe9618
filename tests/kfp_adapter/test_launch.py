"""The step's program started as Kubeflow's launcher starts it: the compiled command, the input in its arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_adapter.compiled import compile_pipeline
from ptjob_provider.kfp.component import pytorchjob_op

if TYPE_CHECKING:
    from kfp_adapter.conftest import LocalStep

SHOWS = """
import json, os, pathlib, sys
path = pathlib.Path(os.environ["PTJOB_MODEL_PATH"])
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text("weights")
print(json.dumps({"args": sys.argv[1:], "FROM_STEP": os.environ["FROM_STEP"], "N": os.environ["N"]}))
"""
ARTIFACTS = {
    "trained_model": "system.Model",
    "metrics": "system.Metrics",
    "curves": "system.HTML",
    "report": "system.Markdown",
}
PARAMETERS = ("job_name", "model_uri", "model_claim", "model_path", "tfevents_uri", "scalars", "result")


def container(folder: Path) -> dict[str, Any]:
    """Return what a compiled step runs."""

    def pipeline():  # noqa: ANN202 - kfp reads annotations, which are texts here
        pytorchjob_op(image="none")

    found: dict[str, Any] = compile_pipeline(pipeline, folder)["deploymentSpec"]["executors"]["exec-pytorchjob"]
    return dict(found["container"])


def executor_input(folder: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return what the launcher hands over; every input is there, and most are null."""
    outputs = {name: {"artifacts": [_artifact(name, kind, folder)]} for name, kind in ARTIFACTS.items()}
    files = {name: {"outputFile": str(folder / name)} for name in PARAMETERS}
    return {
        "inputs": {"parameterValues": inputs},
        "outputs": {"artifacts": outputs, "parameters": files, "outputFile": str(folder / "executor_output.json")},
    }


def _artifact(name: str, kind: str, folder: Path) -> dict[str, Any]:
    schema = {"schemaTitle": kind, "schemaVersion": "0.0.1"}
    return {"name": name, "type": schema, "uri": str(folder / name), "metadata": {}}


def test_the_compiled_command_does_the_step(local_step: LocalStep, tmp_path: Path) -> None:
    """Numbers as a back-end hands them over, the step's settings, and outputs where the launcher looks for them."""
    inputs = {
        "pipeline_run_id": "run-1",
        "pipeline_task_name": "train",
        "pipeline_task_id": "7",
        "name": "digits",
        "image": "none",
        "workers": "<ptjob-int 1>",
        "gpus": None,
        "manifest": None,
        "command": ["python", "-c", SHOWS],
        "args": ["--epochs=<ptjob-int 12.0>", "<ptjob-float 1.0>", 3.0],
        "env": {"N": 2.0},
        "model": "pvc://models/{{$.pipeline_job_uuid}}/m.pt",
        "task_config": {"env": [{"name": "FROM_STEP", "value": "yes"}], "nodeSelector": {"gpu": "a100"}},
    }
    step = container(tmp_path)
    handed_over = json.dumps(executor_input(tmp_path, inputs))
    command = [*step["command"], *(each.replace("{{$}}", handed_over) for each in step["args"])]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        command, cwd=tmp_path, env={**local_step.environ, "PATH": path}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (shown,) = [line for line in done.stdout.splitlines() if line.startswith('{"args"')]
    assert json.loads(shown) == {"args": ["--epochs=12", "1.0", "3"], "FROM_STEP": "yes", "N": "2"}
    made = json.loads((tmp_path / "executor_output.json").read_text())
    assert made["parameterValues"]["model_uri"] == "pvc://models/run-1/m.pt"
    assert made["artifacts"]["trained_model"]["artifacts"][0]["uri"] == "pvc://models/run-1/m.pt"
    assert (tmp_path / "report").is_file()
