"""docs/from-arena.md: each line of its session is run, and every flag that it promises is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import code_servers
from ptjob_provider.cli import main

if TYPE_CHECKING:
    from machine import Machine

PAGE = (Path(__file__).parents[2] / "docs" / "from-arena.md").read_text()
ADDRESS = "https://code.example/mnist.git"
PROGRAM = """
import os, pathlib, sys
assert sys.argv[1:4] == ["--backend", "gloo", "--data"], sys.argv
for number in range(8):
    print("WORLD_SIZE:", os.environ["WORLD_SIZE"], "RANK:", os.environ["RANK"], "step", number, flush=True)
pathlib.Path(sys.argv[4], f"rank-{os.environ['RANK']}").touch()
while os.environ["RANK"] == "0" and not pathlib.Path(sys.argv[4], "rank-1").exists(): pass
"""


def session() -> list[list[str]]:
    """Return the lines of the page's session, in their order."""
    part = PAGE.partition("## A session")[2].partition("\n## ")[0]
    return [shlex.split(line.strip()) for line in part.splitlines() if line.startswith("    ptjob ")]


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its head."""
    part = PAGE.partition(f"## {heading}")[2].partition("\n## ")[0]
    found = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip(" |") for cell in row] for row in found]


def test_every_line_of_the_session_does_what_it_does_in_arena(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`arena` is `ptjob`, image and repository are the test's: nothing else is changed."""
    code_servers.ensure_programs()
    repository = code_servers.repository(tmp_path, PROGRAM)
    monkeypatch.setenv("PTJOB_LOCAL_GPUS", "2")
    said = {}

    with code_servers.http(repository.path.parent) as served:
        for line in session():
            words = [word.replace(ADDRESS, f"{served}/mnist.git") for word in line[1:]]
            result = machine.ptjob(*words)
            assert result.exit_code == 0, f"{line}: {result.output}"
            said[" ".join(line[1:])] = result.stdout

    master = "WORLD_SIZE: 2 RANK: 0 step"
    worker = "WORLD_SIZE: 2 RANK: 1 step"
    assert said["top node"].splitlines()[-1] == "0/2 (0%)"
    assert said["data list"].splitlines()[1].startswith("training-data  ReadWriteMany")
    assert said["list"].splitlines()[1].split()[0] == "pytorch-dist-git"
    assert said["follow pytorch-dist-git"].splitlines() == [f"{master} {number}" for number in range(8)]
    assert "pytorch-dist-git-worker-0" in said["get pytorch-dist-git --type pytorchjob"]
    assert said["logs pytorch-dist-git"] == said["follow pytorch-dist-git"]
    tail = said["logs pytorch-dist-git -i pytorch-dist-git-worker-0 -t 5"].splitlines()
    assert tail == [f"{worker} {number}" for number in range(3, 8)]
    assert said["top job"].splitlines()[1].split()[:4] == ["pytorch-dist-git", "2", "0", "Succeeded"]
    assert said["delete pytorch-dist-git"] == "default/pytorch-dist-git is deleted; its claims are as they were\n"


def test_the_session_is_the_guides() -> None:
    """Not fewer than these; who shortens the page has to look at the guide again."""
    assert [line[1] for line in session() if "--loglevel" not in line] == [
        *("top", "data", "data", "list", "follow", "get", "logs", "logs", "top", "delete"),
    ]


@pytest.mark.parametrize("row", rows("`submit pytorch`"), ids=lambda row: str(row[0]))
def test_a_flag_of_submit_is_there_if_the_page_says_so(row: list[str]) -> None:
    """One that is not here is refused, not ignored."""
    theirs, ours = (re.findall(r"`(-[-\w]+)", cell) for cell in row[:2])
    command = main.get_command(click.Context(main), "submit")
    assert command is not None
    known = {name for each in (*command.params, *main.params) for name in (*each.opts, *each.secondary_opts)}

    if row[1].startswith("not here"):
        assert not set(theirs) & known
    else:
        expected = {*ours, *(theirs if row[1].startswith("the same") else ())}
        assert expected
        assert {name for name in expected if not name.endswith("-")} <= known


@pytest.mark.parametrize("row", rows("The other commands"), ids=lambda row: str(row[0]))
def test_a_flag_of_another_command_is_there_if_the_page_says_so(row: list[str]) -> None:
    """The same words in the same places, or what to use instead."""
    words = re.findall(r"`([^`]+)`", row[0])
    command, flags = words[0].split(), [word for word in words[1:] if word.startswith("-")]
    if row[1].startswith("not here"):
        assert command[0] == "submit" or main.get_command(click.Context(main), command[0]) is None
        return
    found = main.get_command(click.Context(main), command[0])
    for word in command[1:]:
        assert isinstance(found, click.Group)
        found = found.commands[word]
    assert found is not None
    if row[1].startswith("the same"):
        assert set(flags) <= {name for each in found.params for name in each.opts}
