"""Tests of the progress that `ptjob get` shows of real frameworks, beside what the program itself has noted."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from installed import ROOT
from ptjob_provider.core.training_progress import Progress

if TYPE_CHECKING:
    from pathlib import Path

    from machine import Machine

PYTHON = ROOT / ".venv-checkpoints" / "bin" / "python"

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-checkpoints: make soak-checkpoints"),
]


def noted(truth: Path) -> list[dict[str, Any]]:
    """Return the steps that the program has taken."""
    return [json.loads(line) for line in truth.read_text().splitlines()] if truth.exists() else []


@pytest.mark.parametrize("framework", ["trainer", "lightning", "accelerate"])
def test_step_and_loss_are_those_that_the_program_has_noted(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    monkeypatch.setenv("PTJOB_LOCAL_PYTHON", str(PYTHON))
    truth, seen = tmp_path / "truth", []
    program = ["python", str(ROOT / "tests" / "framework_training.py"), framework]
    machine.ptjob("submit", "--name", framework, "--env", f"TRUTH={truth}", "--", *program)
    phase = "Pending"
    while phase not in ("Succeeded", "Failed"):
        time.sleep(1)
        shown = json.loads(machine.ptjob("get", framework, "-o", "json").stdout)
        phase = shown["phase"]
        if shown["progress"] and shown["progress"]["step"]:
            seen.append(Progress.from_dict(shown["progress"]))
    steps = noted(truth)

    assert phase == "Succeeded", machine.ptjob("logs", framework).output[-2000:]
    assert len({state.step for state in seen}) > 10
    for state in seen:
        at = datetime.fromisoformat(state.at).timestamp()
        same = [row for row in steps if (row["step"], row["total"]) == (state.step, state.total)]
        (row,) = [row for row in same if abs(row["at"] - at) < 3] or [None]
        assert row is not None, f"no such step was taken at that time: {state}"
    assert (seen[-1].step, seen[-1].total) == (steps[-1]["step"], steps[-1]["total"])
    assert seen[-1].loss == pytest.approx(steps[-1]["loss"], rel=0.02)
