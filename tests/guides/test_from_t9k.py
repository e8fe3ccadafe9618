"""Run the session of docs/tutorials/from-t9k.md on this machine: the PyTorchJob trains real digits with torchrun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from guide_pages import DIGITS, T9K, TRAINED, accuracy, have_examples
from machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADING = "The same job as a PyTorchJob"
RUN = "torch-mnist-trainingjob"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine without GPUs, which runs jobs that request some on the CPU, in a directory with the examples."""
    monkeypatch.setenv("PTJOB_LOCAL_IMAGES", json.dumps({T9K.image: str(DIGITS)}))
    monkeypatch.setenv("PTJOB_LOCAL_GPUS", "ignore")
    monkeypatch.chdir(tmp_path)
    have_examples(str(DIGITS))
    machine = Machine(root=tmp_path / "jobs")
    yield machine
    machine.clear()


def test_every_line_of_the_session_trains_and_shows_what_the_pages_show(machine: Machine) -> None:
    """With two processes instead of four, and with gloo because there is no GPU. Files in the claim stay."""
    said = {}
    for _, *words in T9K.session(HEADING, {"4": "2", "--backend=nccl": "--backend=gloo"}):
        result = machine.ptjob(*words)
        assert result.exit_code == 0, f"{words}: {result.output}"
        said[" ".join(words[:2])] = result

    log = said["run --name"].stdout
    assert TRAINED.search(log)
    assert accuracy(log) > 0.9
    found = yaml.safe_load(said[f"get {RUN}"].stdout)
    assert (found["phase"], found["job"]["kind"], found["rank0"]) == ("Succeeded", "PyTorchJob", f"{RUN}-master-0")
    assert found["conditions"][-1]["type"] == "Succeeded"
    assert found["tfevents"]["scalars"]["held_out/accuracy"] > 0.9
    assert said[f"logs {RUN}"].stdout.splitlines() == log.splitlines()[-2:]
    assert "NotApplied" in said[f"events {RUN}"].stdout
    assert machine.ptjob("get", RUN).exit_code == 3
    assert {"model_state_dict.pt", "log/"} <= set(said["data ls"].stdout.split())


def test_queue_and_priority_of_the_file_are_sent(machine: Machine) -> None:
    """A queue on the command line does not change the priority."""
    Path(T9K.file).write_text(T9K.manifest())

    sent, other = (machine.ptjob("render", "-f", T9K.file, *words) for words in ((), ("--queue", "vision")))

    assert yaml.safe_load(sent.stdout)["spec"]["scheduler"] == {"t9kScheduler": {"queue": "default", "priority": 50}}
    assert yaml.safe_load(other.stdout)["spec"]["scheduler"] == {"t9kScheduler": {"queue": "vision", "priority": 50}}
