"""Tests of the bar of a long copy, on a terminal of 80 columns."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from at_terminal import AtTerminal
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

    from machine import Machine

PTJOB = "from ptjob_provider.cli import main; main()"
SIZE = 3_000_000


@pytest.fixture
def claim(machine: Machine, tmp_path: Path) -> Path:
    """Return the directory of an empty claim `data`, beside a file and a folder."""
    machine.ptjob("data", "create", "data")
    (tmp_path / "file").write_bytes(os.urandom(SIZE))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "part").write_bytes(os.urandom(SIZE))
    return machine.root / "claims" / "default" / "data"


def copied(machine: Machine, source: object, target: object) -> AtTerminal:
    words = [sys.executable, "-c", PTJOB, "--root", str(machine.root), "data", "cp", str(source), str(target)]
    return AtTerminal(words)


@each_row("name", ["file", "folder"])
def test_a_copy_to_a_claim_has_a_bar_that_is_gone_at_the_end(
    machine: Machine, claim: Path, tmp_path: Path, name: str
) -> None:
    terminal = copied(machine, tmp_path / name, f"pvc://data/{name}")

    lines = terminal.end()

    sent = terminal.sent.decode()
    reading, copying = sent[sent.index("reading ") : sent.index("copying ")], sent[sent.index("copying ") :]
    assert "/3.0 MB" not in reading, "the total is known when everything is packed"
    assert "/3.0 MB" in copying
    assert lines == [f"copied {tmp_path / name} to pvc://data/{name}", ""]
    assert sent.count("\x1b[?25h") == sent.count("\x1b[?25l") == 2, "the cursor is shown again"
    assert (claim / name).exists()


def test_a_copy_from_a_claim_has_one_too(machine: Machine, claim: Path, tmp_path: Path) -> None:
    (claim / "f").write_bytes((tmp_path / "file").read_bytes())

    terminal = copied(machine, "pvc://data/f", tmp_path / "back")
    terminal.end()

    sent = terminal.sent.decode()
    assert "copying " in sent
    assert "/3.0 MB" in sent[sent.index("writing ") :]
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()


def test_a_copy_that_fails_leaves_no_bar(machine: Machine, claim: Path, tmp_path: Path) -> None:
    (tmp_path / "folder" / "z").symlink_to("/etc")

    terminal = copied(machine, tmp_path / "folder", "pvc://data/folder")
    lines = terminal.end()

    assert terminal.process.returncode == 2
    assert lines[0].startswith("Error: ")
    assert terminal.sent.count(b"\x1b[?25h") == terminal.sent.count(b"\x1b[?25l") == 1


@each_row("environment", [{"TERM": "dumb"}, {"stderr": "no terminal"}])
def test_there_is_no_bar_where_it_cannot_be_erased(
    machine: Machine, claim: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    target = "pvc://data/file"
    if "TERM" in environment:
        words = [f"TERM={environment['TERM']}", sys.executable, "-c", PTJOB, "--root", str(machine.root)]
        terminal = AtTerminal(["env", *words, "data", "cp", str(tmp_path / "file"), target])
        terminal.end()
        output = terminal.sent.decode().replace("\r\n", "\n")
    else:
        output = machine.ptjob("data", "cp", str(tmp_path / "file"), target).stderr

    assert output == f"copied {tmp_path / 'file'} to {target}\n"
