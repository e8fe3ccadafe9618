"""Tests of `make gpu-check`: its own logic, which a machine without a GPU can prove."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from guide_pages import DOCS
from rows import each_row

SCRIPT = DOCS.parent / "scripts" / "gpu_check.py"
README = DOCS.parent / "README.md"


def load() -> Any:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


gpu_check = load()


@pytest.mark.skipif(any(Path(file).exists() for file in gpu_check._DRIVER), reason="this machine has an NVIDIA GPU")
def test_without_a_gpu_the_check_says_so_and_the_readme_stays() -> None:
    before = README.read_bytes()

    done = subprocess.run([sys.executable, SCRIPT, "--write"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert "no NVIDIA GPU" in done.stdout
    assert README.read_bytes() == before


def test_a_dry_run_judges_jobs_with_stand_ins_by_their_diagnosis(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One case fails on its GPU, one is refused; what they ran in is gone afterwards, and the README is not written."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before, words = README.read_bytes(), ["--dry-run", "--write", "assert beside", "more GPUs"]

    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.endswith("| yes |")]
    assert [row.split(" | ")[0] for row in rows] == ["| device-side assert beside NCCL", "| more GPUs than there are"]
    assert "stand-in" in done.stdout
    assert (list(tmp_path.iterdir()), README.read_bytes()) == ([], before)


@each_row(
    ("why", "is_good"),
    [
        ({"cause": "gpu_out_of_memory", "retryable": False, "summary": "full"}, True),
        ({"cause": "gpu_out_of_memory", "retryable": True, "summary": "full"}, False),
        ({"cause": "connection_lost", "retryable": False, "summary": "gone"}, False),
        (None, False),
    ],
)
def test_another_cause_than_the_expected_one_is_not_as_it_should_be(why: Any, *, is_good: bool) -> None:
    """A job that succeeded has no diagnosis."""
    assert gpu_check.judge({"phase": "Succeeded", "diagnosis": why}, {"gpu_out_of_memory"})[2] is is_good


def test_a_case_that_breaks_or_hangs_is_a_row_of_its_own() -> None:
    """The cases after it run nevertheless."""

    def breaks() -> Any:
        raise KeyError("began")

    def hangs() -> Any:
        raise subprocess.TimeoutExpired("ptjob", 1)

    assert [gpu_check._row("case", look).is_good for look in (breaks, hangs)] == [False, False]


def test_the_readme_says_what_was_tried_and_no_longer_that_it_was_not() -> None:
    """A second run replaces what the first one wrote; NCCL between GPUs needs two of them."""
    found = {"gpus": ["NVIDIA H100"], "torch": "2.15.0", "nccl": "2.27.3"}
    text = README.read_text()

    one = gpu_check.with_result(text, found, "2026-11-27")
    two = gpu_check.with_result(one, {**found, "gpus": ["NVIDIA H100"] * 2}, "2026-11-28")

    assert one.count("| 1 × NVIDIA H100, 2.15.0, 2.27.3 | 2026-11-27 |\n") == 1
    assert "Never tried: NCCL between GPUs, the official" in one
    assert two.count("NVIDIA GPU, PyTorch, NCCL") == two.count("| 2 × NVIDIA H100, 2.15.0, 2.27.3 | 2026-11-28 |") == 1
    assert "Never tried: the official" in two
