"""A step as its component calls it: inputs and artifacts by name, in an environment where jobs run on this machine."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from kfp import dsl, local

from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.local import LocalBackend, LocalConfig
from ptjob_provider.kfp import step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ptjob_provider.kfp.artifacts import StepOutputs

CANARY = "canary-9f3b"
IDS = {"pipeline_run_id": "run-1", "pipeline_task_name": "train", "pipeline_task_id": "7"}


@dataclass
class LocalStep:
    """Steps of one pipeline on this machine.

    Attributes:
        folder: holds jobs, claims and artifacts.
        artifacts: what the last step was given to write.
    """

    folder: Path
    artifacts: dict[str, Any] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the step's process."""
        ours = {
            "PTJOB_BACKEND": "local",
            "PTJOB_LOCAL_ROOT": str(self.folder / "jobs"),
            "PTJOB_LOCAL_SECRETS": json.dumps({"hub": {"token": CANARY}}),
        }
        return {**os.environ, **ours}

    @property
    def backend(self) -> LocalBackend:
        """Where the jobs are."""
        return LocalBackend(LocalConfig(root=self.folder / "jobs"))

    def jobs(self) -> list[dict[str, Any]]:
        """Return all jobs."""
        return list(asyncio.run(self.backend.list(PYTORCHJOB.KIND, "default", {})))

    def given(self, program: str, **inputs: Any) -> dict[str, Any]:
        """Return what the component is given to run a Python program as a job of one pod."""
        fields = {"name": "digits", "image": "none", "command": ["python", "-c", program], "workers": "1"}
        self.artifacts = {
            name: kind(name=name, uri=str(self.folder / "artifacts" / name))
            for name, kind in {
                "trained_model": dsl.Model,
                "metrics": dsl.Metrics,
                "curves": dsl.HTML,
                "report": dsl.Markdown,
            }.items()
        }
        return {**IDS, **fields, **inputs, **self.artifacts}

    def run(self, program: str, environ: Mapping[str, str] | None = None, **inputs: Any) -> StepOutputs:
        """Run one step to its end in this process."""
        return step.run(self.given(program, **inputs), {**self.environ, **(environ or {})})

    def run_pipeline(self, define: Callable[..., Any]) -> None:
        """Run a whole pipeline to its end, by kfp's own runner."""
        local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(self.folder / "artifacts"))
        dsl.pipeline(name="local")(define)()


@pytest.fixture
def local_step(tmp_path: Path) -> LocalStep:
    """Return a pipeline that has not run a step yet."""
    return LocalStep(tmp_path)


@pytest.fixture
def local_pipelines(local_step: LocalStep, monkeypatch: pytest.MonkeyPatch) -> LocalStep:
    """Have jobs be processes, and kfp's runner not take the folder `docker` for Docker's client.

    The runner indents what loops print by another `print` in its place, and does not put it back where their threads
    overlap (kfp.local.logging_utils, 2.17.0).
    """
    monkeypatch.setattr(builtins, "print", builtins.print)
    monkeypatch.setenv("PTJOB_BACKEND", "local")
    monkeypatch.setenv("PTJOB_LOCAL_ROOT", str(local_step.folder / "jobs"))
    monkeypatch.setitem(sys.modules, "docker", None)
    return local_step
