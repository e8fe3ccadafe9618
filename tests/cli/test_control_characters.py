"""Tests of control characters in a training's output: a terminal gets them as text."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from ptjob_provider.cli.output import printable

if TYPE_CHECKING:
    from machine import Machine

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
SAID = "\x1b]0;owned\x07\x1b[2J\x9b31mred\x7f"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31mred\x7f"
PROGRAM = f"""
import os
print({SAID!r}, "first", flush=True)
print("\\r 1%\\r 2%\\r", flush=True)
raise ValueError({SAID!r})
"""
NAMES = ["plain.txt", "a\x1b[2Jb", "c\x9bd", b"e\xfff"]


def write(machine: Machine) -> None:
    """Put files with unusual names on a claim."""
    folder = machine.root / "claims" / "default" / "odd"
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / os.fsdecode(name)).touch()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a line\n\tof a table", "a line\n\tof a table"),
        (SAID, SHOWN),
        ("\x00\r\x85é💾", r"\x00\x0d\x85é💾"),
        ("a\udcffb", r"a\udcffb"),
        ("loss\u202eabc\u2066", r"loss\u202eabc\u2066"),
    ],
)
def test_control_characters_are_shown_and_not_sent(text: str, expected: str) -> None:
    """C0 and C1 characters, bytes of a name that are not UTF-8, what turns a text round; not line breaks and tabs."""
    assert printable(text) == expected


def test_every_command_shows_the_output_of_a_job_without_control_characters(machine: Machine) -> None:
    """The job's diagnosis begins with its program's output."""
    run = machine.ptjob("run", "--name", "odd", "--image", "none", "python", "-c", PROGRAM)
    said = [run.stderr, *(machine.ptjob(*words).output for words in (["get", "odd"], ["list"], ["events", "odd"]))]

    assert [CONTROL.findall(text) for text in said] == [[]] * 4
    assert SHOWN in said[0]
    assert SHOWN in said[1]


def test_values_for_programs_are_the_same_without_control_characters_in_them(machine: Machine) -> None:
    """JSON and YAML escape such characters."""
    machine.ptjob("run", "--name", "odd", "--image", "none", "python", "-c", PROGRAM)
    as_json, as_yaml = (machine.ptjob("get", "odd", "-o", output).stdout for output in ("json", "yaml"))

    assert (CONTROL.findall(as_json), CONTROL.findall(as_yaml)) == ([], [])
    assert SAID in json.loads(as_json)["diagnosis"]["summary"]
    assert SAID in yaml.safe_load(as_yaml)["diagnosis"]["summary"]


def test_odd_names_of_files_are_shown(machine: Machine) -> None:
    """One of the names is not UTF-8."""
    write(machine)

    listed, as_json = machine.ptjob("data", "ls", "pvc://odd"), machine.ptjob("data", "ls", "pvc://odd", "-o", "json")

    assert listed.exit_code == 0, listed.output
    assert CONTROL.findall(listed.output) == []
    assert r"a\x1b[2Jb" in listed.output
    assert r"e\udcfff" in listed.output
    assert {os.fsencode(row["name"]) for row in json.loads(as_json.stdout)} == {os.fsencode(name) for name in NAMES}


def test_a_log_is_raw_except_at_a_terminal(machine: Machine) -> None:
    """Programs that read it get the original bytes."""
    machine.ptjob("run", "--name", "odd", "--image", "none", "python", "-c", PROGRAM)

    raw = subprocess.run(machine.command("logs", "odd"), capture_output=True, check=True).stdout
    shown = machine.at_terminal("logs", "odd")

    assert f"{SAID} first\n".encode() in raw
    assert f"{SHOWN} first" in shown
    assert "\r 2%\r\n" in shown  # a progress bar, as a terminal would show it
    assert CONTROL.findall(shown.replace("\r\n", "\n").replace("\r 2%", " 2%")) == []


@pytest.mark.parametrize("level", ["warning", "info"])
def test_log_messages_are_shown_without_control_characters(machine: Machine, level: str) -> None:
    """The core logs messages of servers."""
    program = (
        "import logging; from ptjob_provider.cli import main\n"
        f"main(['--loglevel', {level!r}, '--root', {str(machine.root)!r}, 'list'], standalone_mode=False)\n"
        f"logging.getLogger('ptjob_provider').warning('%s', {SAID!r})"
    )

    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stderr.decode()

    assert SHOWN in found
    assert CONTROL.findall(found) == []
