"""A step as its component calls it: inputs and artifacts by name, in an environment where jobs run on this machine."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from kfp import dsl

from ptjob_provider.core.local import LocalBackend, LocalConfig
from ptjob_provider.kfp import step

if TYPE_CHECKING:
    from collections.abc import Mapping
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

    def given(self, program: str, **inputs: Any) -> dict[str, Any]:
        """Return what the component is given to run a Python program as a job of one pod."""
        asked = {"name": "digits", "image": "none", "command": ["python", "-c", program], "workers": "1"}
        self.artifacts = {
            name: kind(name=name, uri=str(self.folder / "artifacts" / name))
            for name, kind in {
                "trained_model": dsl.Model,
                "metrics": dsl.Metrics,
                "curves": dsl.HTML,
                "report": dsl.Markdown,
            }.items()
        }
        return {**IDS, **asked, **inputs, **self.artifacts}

    def run(self, program: str, environ: Mapping[str, str] | None = None, **inputs: Any) -> StepOutputs:
        """Run one step to its end in this process."""
        return step.run(self.given(program, **inputs), {**self.environ, **(environ or {})})


@pytest.fixture
def local_step(tmp_path: Path) -> LocalStep:
    """Return a pipeline that has not run a step yet."""
    return LocalStep(tmp_path)
