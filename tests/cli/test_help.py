"""Tests of `ptjob`'s help: its texts, and the modules that it loads."""

from __future__ import annotations

import subprocess
import sys

import click
from click.testing import CliRunner

from ptjob_provider.cli import SECTIONS, main
from rows import each_row

HEAVY = {"aiohttp", "kubernetes_asyncio", "rich", "asyncio", "airflow", "kfp", "kubernetes", "psutil", "torch"}
"""Modules that are slow to load."""

COMMANDS = [(name, line) for commands in SECTIONS.values() for name, (_, line) in commands.items()]


def loaded(*lines: list[str]) -> set[str]:
    """Return the modules that a new process has loaded after these commands."""
    program = (
        "import sys\nfrom ptjob_provider.cli import main\n"
        f"for words in {lines!r}: main(words, standalone_mode=False)\nprint(*sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    return {name.partition(".")[0] for name in printed.splitlines()[-1].split()}


def test_help_loads_no_command() -> None:
    """`ptjob --help` is fast: it lists the commands without loading them or YAML."""
    assert not loaded(["--help"]) & {*HEAVY, "yaml"}


def test_a_commands_help_loads_nothing_that_takes_time() -> None:
    """A command's help needs neither the back-end nor the library for tables."""
    assert not loaded(*([command, "--help"] for command, _ in COMMANDS)) & HEAVY


@each_row(("name", "line"), COMMANDS)
def test_the_line_in_help_is_that_of_the_command(name: str, line: str) -> None:
    """The general help has the first line of each command's help, but does not load the command."""
    command = main.get_command(click.Context(main), name)

    assert command is not None
    assert command.name == name
    assert (command.help or "").splitlines()[0] == line


@each_row(
    ("words", "instead"),
    [
        (["get", "digits", "--gpus"], "--gpus is not here: `ptjob top job NAME`"),
        (["top", "node", "--refresh"], "--refresh is not here: again and again: `watch ptjob top node`"),
    ],
)
def test_flags_of_arena_that_are_not_here_are_answered_with_an_alternative(words: list[str], instead: str) -> None:
    """Anywhere on the line; unknown flags get the usual message."""
    result = CliRunner().invoke(main, words)

    assert (result.exit_code, instead in result.output) == (2, True), result.output
    assert "No such option '--nam'" in CliRunner().invoke(main, ["list", "--nam"]).output
