"""Run the manifest and session of docs/tutorials/from-kubectl.md on this machine; run the manifest in Airflow, too."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from airflow_adapter.own_home import make_home
from guide_pages import DIGITS, OPERATORS, TRAINED, accuracy
from machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
JOB = "pytorch-dist-mnist-nccl"
IMAGES = json.dumps({OPERATORS.image: str(DIGITS)})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine that pretends to have two GPUs, with a directory for the image and the page's manifest as a file."""
    monkeypatch.setenv("PTJOB_LOCAL_IMAGES", IMAGES)
    monkeypatch.setenv("PTJOB_LOCAL_GPUS", "2")
    monkeypatch.chdir(tmp_path)
    Path(OPERATORS.file).write_text(OPERATORS.manifest())
    machine = Machine(root=tmp_path / "jobs")
    yield machine
    machine.clear()


def test_every_line_of_the_session_does_what_the_guides_line_does(machine: Machine) -> None:
    """The manifest is unchanged. Lines of kubectl are not run."""
    said = {}
    for program, *words in OPERATORS.session():
        if program == "ptjob":
            result = machine.ptjob(*words)
            assert result.exit_code == 0, f"{words}: {result.output}"
            said[words[0]] = result.stdout

    assert "backend=gloo" in said["follow"]
    assert TRAINED.search(said["follow"])
    assert accuracy(said["follow"]) > 0.9
    found = yaml.safe_load(said["get"])
    assert (found["phase"], found["replica_statuses"]["Master"]["succeeded"]) == ("Succeeded", 1)
    assert {"Created", "Succeeded"} <= {each["type"] for each in found["conditions"] if each["status"] == "True"}
    assert all(each["lastTransitionTime"] for each in found["conditions"])
    assert re.search(rf"NotApplied +pytorchjob/{JOB} ", said["events"])
    assert said["logs"].splitlines() == said["follow"].splitlines()[-2:]
    assert said["delete"].endswith("is deleted; its claims are as they were\n")


def test_the_error_of_a_training_that_asks_for_nccl_without_a_gpu_names_gloo(machine: Machine) -> None:
    """NCCL finds no GPU; the page gives the same advice."""
    failed = machine.ptjob("run", "-f", OPERATORS.file, "--restart-policy", "Never")

    assert failed.exit_code == 1
    assert "--backend nccl needs a GPU and this process has none; without a GPU use --backend gloo" in failed.stderr
    assert "have the program use the back-end gloo, which needs none, instead of nccl" in failed.stderr


def test_the_same_file_is_a_task_of_airflow(tmp_path: Path) -> None:
    """`manifest=` takes its path; `args` replaces its arguments, and the log says that there is no GPU."""
    home = make_home(
        tmp_path / "home",
        AIRFLOW__PTJOB__LOCAL_IMAGES=IMAGES,
        AIRFLOW__PTJOB__LOCAL_GPUS="ignore",
        FIELDS=json.dumps({"manifest": str(tmp_path / OPERATORS.file), "args": ["--backend", "gloo"]}),
    )
    (tmp_path / OPERATORS.file).write_text(OPERATORS.manifest())

    log = home.run(shutil.copy(HERE / "manifest_dag.py", tmp_path))

    result = json.loads((home.seen / "result.json").read_text())
    assert (result["phase"], result["job"]["kind"]) == ("Succeeded", "PyTorchJob")
    assert "the job runs on the CPU" in log
    assert accuracy(log) > 0.9
