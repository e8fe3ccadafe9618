"""Real jobs of this machine for the command line, and the command line with a scripted back-end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from machine import Machine
from ptjob_provider.cli import main
from ptjob_provider.cli.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result

SPEAKS = """
import os
for number in range(5):
    print(f"rank {os.environ['RANK']} line {number}", flush=True)
"""
SUCCEEDS = (
    SPEAKS
    + """
import pathlib, time
model = pathlib.Path(os.environ["PTJOB_MODEL_PATH"])
spoken = model.with_suffix(".spoken")
if os.environ["RANK"] == "1":
    spoken.touch()
while not spoken.exists():  # a job whose master has succeeded is over, and its workers are stopped
    time.sleep(0.05)
if os.environ["RANK"] == "0":
    model.write_text("m" * 10)
"""
)
FAILS = (
    SPEAKS
    + """
if os.environ["RANK"] == "1":
    raise ValueError("the learning rate is not a number")
import time
time.sleep(600)
"""
)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return a root without jobs; what a test starts there is stopped."""
    machine = Machine(root=tmp_path / "jobs")
    yield machine
    machine.clear()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Return a root with a job `good` that succeeded and a job `bad` that failed; tests only read it."""
    machine = Machine(root=tmp_path_factory.mktemp("ended") / "jobs")
    machine.submit("good", SUCCEEDS, model="pvc://models/digits.pt")
    machine.submit("bad", FAILS)
    machine.finish("good")
    machine.finish("bad")
    yield machine
    machine.clear()


@pytest.fixture
def ptjob(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a command line in the namespace `team` of a scripted back-end and inspector."""

    def run(scripted: object, *words: str, inspector: object = None, backend: str = "local") -> Result:
        monkeypatch.setattr(Target, "open", lambda *_, **__: scripted)
        monkeypatch.setattr(Target, "inspector", lambda _: inspector)
        return CliRunner().invoke(main, ["--backend", backend, "-n", "team", *words])

    return run
