"""Fixtures that run steps and pipelines with the local back-end."""

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
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.local.config import LocalConfig
from ptjob_provider.kfp import step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ptjob_provider.kfp.artifacts import StepOutputs

CANARY = "canary-9f3b"
IDS = {"pipeline_run_id": "run-1", "pipeline_task_name": "train", "pipeline_task_id": "7"}


@dataclass
class LocalStep:
    """Steps of one pipeline on this machine.

    Attributes:
        folder: Directory for jobs, claims and artifacts.
        artifacts: The output artifacts of the last step.
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
        """The local back-end that keeps the jobs."""
        return LocalBackend(LocalConfig(root=self.folder / "jobs"))

    def jobs(self) -> list[dict[str, Any]]:
        return list(asyncio.run(self.backend.list(PYTORCHJOB.KIND, "default", {})))

    def given(self, program: str, **inputs: Any) -> dict[str, Any]:
        """Return the component's arguments for a job of one pod that runs a Python program."""
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

    def run(self, program: str, **inputs: Any) -> StepOutputs:
        """Run one step to its end in this process."""
        return step.run(self.given(program, **inputs), self.environ)

    def run_pipeline(self, define: Callable[..., Any]) -> None:
        """Run a whole pipeline to its end with kfp.local."""
        local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(self.folder / "artifacts"))
        dsl.pipeline(name="local")(define)()


@pytest.fixture
def local_step(tmp_path: Path) -> LocalStep:
    return LocalStep(tmp_path)


@pytest.fixture
def local_pipelines(local_step: LocalStep, monkeypatch: pytest.MonkeyPatch) -> LocalStep:
    """Run jobs as processes, and hide the folder `docker` from kfp's runner, which would import it as Docker's client.

    The runner replaces `print` to indent the output of loops, and does not restore it when their threads overlap
    (kfp.local.logging_utils, 2.17.0).
    """
    monkeypatch.setattr(builtins, "print", builtins.print)
    monkeypatch.setenv("PTJOB_BACKEND", "local")
    monkeypatch.setenv("PTJOB_LOCAL_ROOT", str(local_step.folder / "jobs"))
    monkeypatch.setitem(sys.modules, "docker", None)
    return local_step
