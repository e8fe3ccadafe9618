"""Tests of the programs in "Survive preemption": told to stop, and started again, they repeat no step."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from cluster.fixtures import import_or_skip
from guide_pages import DOCS, Reader
from half_written import look

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT = DOCS.parent
STEP = re.compile(r"step (\d+)/10000")


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """Return a reader who has saved the page's programs."""
    reader = Reader(tmp_path)
    reader.save((DOCS / "how-to/survive-preemption.md").read_text())
    return reader


@pytest.fixture(scope="module")
def python_with_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python that has transformers and Lightning."""
    folder = tmp_path_factory.mktemp("libraries") / "venv"
    wanted = ["torch", "transformers", "accelerate", "lightning"]
    subprocess.run([ROOT / "scripts/environment.sh", "wheel", "airflow", folder, *wanted], check=True)
    return folder / "bin/python"


def started(python: Path, program: Path, folder: Path, resume_from: str | None) -> subprocess.Popen[str]:
    variables = {"PTJOB_CHECKPOINT_DIR": str(folder), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    if resume_from is not None:
        variables["PTJOB_RESUME_FROM"] = resume_from
    command = [python, "-W", "ignore", program.name]
    return subprocess.Popen(
        command,
        cwd=program.parent,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def told_to_stop(program: subprocess.Popen[str], *, after: int) -> tuple[list[str], int]:
    """Send SIGTERM after so many steps; return all lines and the exit code."""
    assert program.stdout is not None
    with program:
        lines: list[str] = []
        for line in program.stdout:
            lines.append(line)
            if sum("loss" in each for each in lines[-1:]) and steps_in(lines) == after:
                program.send_signal(signal.SIGTERM)
    return lines, program.returncode


def steps_in(lines: list[str]) -> int:
    return sum("'loss'" in line or bool(STEP.search(line)) for line in lines)


def found(folder: Path) -> tuple[str, int]:
    """Return the path of the checkpoint that an attempt would get, and its step as its files have it."""
    report = look(folder)
    assert report["path"] is not None, report
    path = folder / report["path"]
    torch = import_or_skip("torch")
    if path.is_dir():
        return str(path), int(path.name.partition("-")[2])
    state = torch.load(path, weights_only=False)
    return str(path), int(state.get("step") or state.get("global_step"))


def repeats_no_step(python: Path, program: Path, folder: Path) -> Iterator[str]:
    """Run a program, stop it, run it again; yield what is wrong."""
    lines, code = told_to_stop(started(python, program, folder, None), after=25)
    path, saved = found(folder)
    if code == 0 or saved < 25:
        yield f"exit code {code}, saved step {saved}: {''.join(lines[-20:])}"
    again, code = told_to_stop(started(python, program, folder, path), after=5)
    _, then = found(folder)
    first = next((int(step[1]) for line in again if (step := STEP.search(line))), saved + 1)
    if code == 0 or first != saved + 1 or not saved < then < saved + 5000:
        yield f"exit code {code}, first step {first} after {saved}, then saved {then}: {''.join(again[-20:])}"


@pytest.mark.soak
@pytest.mark.parametrize("program", ["plain.py", "hugging_face.py", "lightning_module.py"])
def test_a_program_goes_on_at_the_step_at_which_it_was_stopped(
    program: str, reader: Reader, python_with_libraries: Path
) -> None:
    assert list(repeats_no_step(python_with_libraries, reader.folder / program, reader.folder / "ckpt")) == []
