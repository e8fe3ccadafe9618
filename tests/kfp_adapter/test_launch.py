"""Run the step with its compiled command, as Kubeflow's launcher does: the input is in the arguments.

kfp reads annotations as objects, not as strings.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kfp import dsl, kubernetes

from kfp_adapter.compiled import compile_pipeline
from kfp_adapter.conftest import LocalStep
from kfp_adapter.driver_stand_in import Driven
from kfp_adapter.folders import write_code, write_folder
from kfp_cluster.in_pod.launcher_stand_in import compiled, with_defaults
from ptjob_provider.kfp.component import pytorchjob_op

SHOWS = """
import json, os, pathlib, sys
path = pathlib.Path(os.environ["PTJOB_MODEL_PATH"])
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text("weights")
print(json.dumps({"args": sys.argv[1:], "FROM_STEP": os.environ["FROM_STEP"], "N": os.environ["N"]}))
"""
NOTE = 'say "hi" \\ and go'
"""A parameter that JSON escapes."""

SAID = ["--epochs=12", "1.0", "3", "<&>"]


def driven(folder: Path) -> Driven:
    """Return the task of a run with numbers and settings."""

    def pipeline(epochs: int = 12, note: str = NOTE) -> None:
        task = pytorchjob_op(
            name="digits",
            image="none",
            workers=1,
            command=["python", "-c", SHOWS],
            args=[f"--epochs={epochs}", 1.0, 3, "<&>", note, f"of {note}"],
            env={"N": 2},
            model=f"pvc://models/{dsl.PIPELINE_JOB_ID_PLACEHOLDER}/m.pt",
        )
        task.set_env_variable("FROM_STEP", "yes")
        kubernetes.add_node_selector(task, "gpu", "a100")

    return Driven(pipeline=compile_pipeline(pipeline, folder))


def on_this_machine(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the launcher's input with the outputs in a local folder instead of the paths in a pod."""
    outputs = given["outputs"]
    for name, each in outputs["artifacts"].items():
        each["artifacts"][0]["uri"] = str(folder / name)
    for name, each in outputs["parameters"].items():
        each["outputFile"] = str(folder / name)
    return {**given, "outputs": {**outputs, "outputFile": str(folder / "executor_output.json")}}


def launched(step: Driven, machine: LocalStep) -> str:
    """Run the step's compiled command to its end and return its output."""
    given = with_defaults(on_this_machine(step.executor_input(), machine.folder), dict(step.component))
    command = compiled([*step.container["command"], *step.container["args"]], given)
    environ = {**machine.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=machine.folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_compiled_command_does_the_step(local_step: LocalStep, tmp_path: Path) -> None:
    """The input has numbers as Kubeflow passes them; settings apply, and the launcher finds the outputs."""
    step = driven(tmp_path)

    said = launched(step, local_step)

    (shown,) = [line for line in said.splitlines() if line.startswith('{"args"')]
    assert json.loads(shown) == {"args": [*SAID, NOTE, f"of {NOTE}"], "FROM_STEP": "yes", "N": "2"}
    made = json.loads((tmp_path / "executor_output.json").read_text())
    assert made["parameterValues"]["model_uri"] == "pvc://models/run-1/m.pt"
    (trained,) = made["artifacts"]["trained_model"]["artifacts"]
    assert trained["uri"] == str(tmp_path / "trained_model")
    assert trained["metadata"]["uri"] == "pvc://models/run-1/m.pt"
    assert (tmp_path / "report").is_file()
    (job,) = local_step.jobs()
    assert job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["nodeSelector"] == {"gpu": "a100"}


def test_a_folder_from_the_artifact_store_is_the_code(local_step: LocalStep, tmp_path: Path) -> None:
    """The driver names no class of an input artifact, so kfp's runtime calls the annotation of the input."""
    write = dsl.component(base_image="python:3.11", install_kfp_package=False)(write_code)

    def pipeline() -> None:
        pytorchjob_op(image="none", command=["python", "-c", "from parts import net; print(net)"], code=write().output)

    write_folder(tmp_path / "project")
    written = {"artifacts": {"code": {"uri": str(tmp_path / "project"), "metadata": {}}}}

    said = launched(Driven(pipeline=compile_pipeline(pipeline, tmp_path), upstream={"write-code": written}), local_step)

    assert "<module 'parts.net' from" in said
    assert "keeps no executable bits and no empty folders" in said
