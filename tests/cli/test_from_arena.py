"""docs/from-arena.md: each line of its session is run, and every flag that it promises is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import pytest

import code_servers
from arena_page import PROGRAM, logged, rows, session
from ptjob_provider.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from machine import Machine


def test_every_line_of_the_session_does_what_it_does_in_arena(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`arena` is `ptjob`, image and repository are the test's: nothing else is changed."""
    code_servers.ensure_programs()
    repository = code_servers.repository(tmp_path, PROGRAM)
    monkeypatch.setenv("PTJOB_LOCAL_GPUS", "2")
    said = {}

    with code_servers.http(repository.path.parent) as served:
        for line in session(address=f"{served}/mnist.git"):
            result = machine.ptjob(*line)
            assert result.exit_code == 0, f"{line}: {result.output}"
            said[" ".join(line)] = result.stdout

    assert said["top node"].splitlines()[-1] == "0/2 (0%)"
    assert said["data list"].splitlines()[1].startswith("training-data  ReadWriteMany")
    assert said["list"].splitlines()[1].split()[0] == "pytorch-dist-git"
    assert said["follow pytorch-dist-git"].splitlines() == logged(rank=0)
    assert "pytorch-dist-git-worker-0" in said["get pytorch-dist-git --type pytorchjob"]
    assert said["logs pytorch-dist-git"] == said["follow pytorch-dist-git"]
    tail = said["logs pytorch-dist-git -i pytorch-dist-git-worker-0 -t 5"].splitlines()
    assert tail == logged(rank=1)[-5:]
    assert said["top job"].splitlines()[1].split()[:4] == ["pytorch-dist-git", "2", "0", "Succeeded"]
    assert said["delete pytorch-dist-git"] == "default/pytorch-dist-git is deleted; its claims are as they were\n"


def test_the_session_is_the_guides() -> None:
    """Not fewer than these; who shortens the page has to look at the guide again."""
    assert [line[0] for line in session() if "--loglevel" not in line] == [
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
