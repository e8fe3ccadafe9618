"""Run the sessions of docs/tutorials/from-arena.md, compare their lines with the guides', and check every flag."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

import code_servers
from airflow_adapter.own_home import make_home
from arena_page import (
    ADDRESS,
    CHINESE,
    EDITED,
    ENGLISH,
    GUIDES,
    rows,
    serve_code,
    session,
    task_fields,
    trained,
)
from guide_pages import DIGITS
from machine import Machine
from ptjob_provider.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

GUIDE_DAG = Path(__file__).with_name("manifest_dag.py")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Pretend to have three GPUs."""
    code_servers.ensure_programs()
    monkeypatch.setenv("PTJOB_LOCAL_GPUS", "3")
    machine = Machine(root=tmp_path / "jobs")
    yield machine
    machine.clear()


@pytest.fixture
def with_data(machine: Machine, tmp_path: Path) -> Machine:
    """Create the Chinese guide's claim with training images, as the page does."""
    deliver = [sys.executable, str(DIGITS / "deliver.py"), "--to", str(tmp_path / "pytorch_data"), "--count", "1437"]
    subprocess.run(deliver, check=True, capture_output=True)
    for words in (("create", "training-data"), ("cp", str(tmp_path / "pytorch_data"), "pvc://training-data/")):
        assert machine.ptjob("data", *words).exit_code == 0
    return machine


def run_session(machine: Machine, guide: str, address: str) -> dict[str, Result]:
    """Run each line with `ptjob`, waiting for the end where the guide waits; return the last result of each line."""
    said = {}
    for _, *line in session(guide, address=address, backend="gloo"):
        if line[0] == "logs" and "follow" not in said:
            said["follow"] = machine.ptjob("follow", line[1])
        result = machine.ptjob(*line)
        assert result.exit_code == 0, f"{line}: {result.output}"
        said[" ".join(line[:2] if line[0] == "submit" else line)] = result
    return said


def test_every_line_of_the_english_guide_does_what_it_does_in_arena(machine: Machine, tmp_path: Path) -> None:
    """Two nodes train real digits for an epoch, with the program from the git repository."""
    with code_servers.http(serve_code(tmp_path)) as served:
        said = run_session(machine, ENGLISH, f"{served}/mnist-pytorch.git")

    job, worker = "pytorch-dist-git", "pytorch-dist-git-worker-0"
    log, worker_log = said[f"logs {job}"].stdout, said[f"logs {job} -i {worker}"].stdout
    assert said["top node"].stdout.splitlines()[-1] == "0/3 (0%)"
    assert said["list"].stdout.splitlines()[1].split()[0] == job
    assert worker in said[f"get {job}"].stdout
    assert worker in said[f"get {job} --type pytorchjob"].stdout
    assert said["follow"].stdout == log
    assert trained(0, log, workers=2, epochs=1) == trained(1, worker_log, workers=2, epochs=1) > 0.5
    assert said[f"logs {job} -i {worker} -t 5"].stdout.splitlines() == worker_log.splitlines()[-5:]


def test_every_line_of_the_chinese_guide_does_what_it_does_in_arena(with_data: Machine, tmp_path: Path) -> None:
    """Three nodes train for ten epochs on the images in the claim, and write their curves to it."""
    with code_servers.http(serve_code(tmp_path)) as served:
        said = run_session(with_data, CHINESE, f"{served}/mnist-pytorch.git")

    log, worker_log = (said[f"logs pytorch-dist{which}"].stdout for which in ("", " -i pytorch-dist-worker-0"))
    assert said["data list"].stdout.splitlines()[1].startswith("training-data  ReadWriteMany")
    assert said["top job"].stdout.splitlines()[1].split()[0] == "pytorch-dist"
    assert "pytorch-dist-worker-1" in said["get pytorch-dist"].stdout
    assert trained(0, log, workers=3, epochs=10) == trained(1, worker_log, workers=3, epochs=10) > 0.9
    assert re.search(r"data='[^']*/pytorch_data/', dir='[^']*/pytorch_data/logs'", log)
    assert said["logs pytorch-dist -f"].stdout == said["follow"].stdout == log
    assert said["logs pytorch-dist -t 5"].stdout.splitlines() == log.splitlines()[-5:]
    assert with_data.ptjob("delete", "pytorch-dist").stdout.endswith("is deleted; its claims are as they were\n")
    assert "events.out.tfevents" in with_data.ptjob("data", "ls", "pvc://training-data/pytorch_data/logs").stdout


def test_the_english_guides_line_takes_a_private_repository(machine: Machine, tmp_path: Path) -> None:
    """Uses the two variables that the Chinese guide names; the manifest does not show the password."""
    _, line = session(ENGLISH)[:2]
    own = [f"--env=GIT_SYNC_USERNAME={code_servers.USER}", f"--env=GIT_SYNC_PASSWORD={code_servers.PASSWORD}"]

    with code_servers.http(serve_code(tmp_path), private=True) as served:
        words = [word.replace(ADDRESS, f"{served}/mnist-pytorch.git") for word in line[1:]]
        submitted = machine.ptjob(*words[:-1], *own, words[-1])
        followed = machine.ptjob("follow", "pytorch-dist-git")

    assert submitted.exit_code == followed.exit_code == 0, submitted.output + followed.output
    assert trained(0, followed.stdout, workers=2, epochs=1) > 0.5
    assert code_servers.PASSWORD not in machine.ptjob("get", "pytorch-dist-git", "-o", "yaml").stdout


@pytest.mark.parametrize("guide", GUIDES)
def test_the_pages_lines_are_the_guides(guide: str) -> None:
    """Only the words in `EDITED` differ."""
    theirs = [shlex.split(line) for line in GUIDES[guide].strip().splitlines()]

    assert session(guide) == [[EDITED.get(word, word) for word in line] for line in theirs]


def test_the_chinese_guides_training_is_a_task_of_airflow(with_data: Machine, tmp_path: Path) -> None:
    """`code=` fetches the program; the result has its revision, and the log a notice about `tensorboard=`."""
    with code_servers.http(serve_code(tmp_path)) as served:
        fields = task_fields(code=f"{served}/mnist-pytorch.git")
        fields["command"] = ["gloo" if word == "nccl" else word for word in fields["command"]]
        home = make_home(
            tmp_path / "home",
            AIRFLOW__PTJOB__LOCAL_ROOT=str(with_data.root),
            AIRFLOW__PTJOB__LOCAL_GPUS="3",
            FIELDS=json.dumps({name: value for name, value in fields.items() if name != "task_id"}),
        )
        log = home.run(shutil.copy(GUIDE_DAG, tmp_path))

    result = json.loads((home.seen / "result.json").read_text())
    head = code_servers.git(tmp_path / "served" / "mnist-pytorch.git", "rev-parse", "HEAD")
    assert (result["phase"], result["git_revision"]) == ("Succeeded", head)
    assert "tensorboard (`ptjob tensorboard` says how to show the curves)" in log
    assert float(re.findall(r"accuracy=(\d\.\d+)", log)[-1]) > 0.9
    assert list((with_data.root / "claims/default/training-data/pytorch_data/logs").glob("events.out.tfevents*"))


@pytest.mark.parametrize("row", rows("`submit pytorch`"), ids=lambda row: str(row[0]))
def test_a_flag_of_submit_is_there_if_the_page_says_so(row: list[str]) -> None:
    """Unsupported flags are refused, not ignored."""
    theirs, ours = (re.findall(r"`(-[-\w]+)", cell) for cell in row[:2])
    command = main.get_command(click.Context(main), "submit")
    assert command is not None
    known = {name for each in (*command.params, *main.params) for name in (*each.opts, *each.secondary_opts)}

    if row[1].startswith("not here"):
        assert not set(theirs) & known
        for flag in theirs:
            refused = CliRunner().invoke(main, ["submit", "--name", "x", flag, "y"])
            assert (refused.exit_code, f"{flag} is not here: {row[2]}" in refused.output) == (2, True), refused.output
    else:
        expected = {*ours, *(theirs if row[1].startswith("the same") else ())}
        assert expected
        assert {name for name in expected if not name.endswith("-")} <= known


@pytest.mark.parametrize("row", rows("The other commands"), ids=lambda row: str(row[0]))
def test_a_flag_of_another_command_is_there_if_the_page_says_so(row: list[str]) -> None:
    """The page says that the flag is the same, or what to use instead."""
    words = re.findall(r"`([^`]+)`", row[0])
    command, flags = words[0].split(), [word for word in words[1:] if word.startswith("-")]
    if row[1].startswith("not here"):
        refused = CliRunner().invoke(main, [*command, "x"])
        assert (refused.exit_code, "is not " in refused.output) == (2, True), refused.output
        assert command[0] == "submit" or f"{command[0]!r} is not here: {row[2]}" in refused.output
        return
    found = main.get_command(click.Context(main), command[0])
    for word in command[1:]:
        assert isinstance(found, click.Group)
        found = found.commands[word]
    assert found is not None
    if row[1].startswith("the same"):
        assert set(flags) <= {name for each in found.params for name in each.opts}
