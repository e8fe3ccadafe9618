"""Colours are for people at a terminal: a real one, a pseudo-terminal of this machine."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from machine import Machine

ESCAPE = "\x1b["
PROGRAM = "from ptjob_provider.cli import main; main()"


def command(machine: Machine) -> list[str]:
    return [sys.executable, "-c", PROGRAM, "--root", str(machine.root), "list"]


def environment(**more: str) -> dict[str, str]:
    """Return this process's, without what decides about colours, as at a terminal that has some."""
    deciding = {"NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"}
    return {name: value for name, value in os.environ.items() if name not in deciding} | {"TERM": "xterm"} | more


def at_terminal(machine: Machine, **more: str) -> str:
    """Return what a terminal is sent."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command(machine), env=environment(**more), stdin=theirs, stdout=theirs) as process:
        os.close(theirs)
        sent = b""
        try:
            while part := os.read(ours, 4096):
                sent += part
        except OSError:  # the other end is closed: that is how a terminal of Linux ends
            pass
    os.close(ours)
    assert process.returncode == 0, sent
    return sent.decode()


def test_a_terminal_gets_colours(ended: Machine) -> None:
    """Each phase in its own."""
    sent = at_terminal(ended)

    assert f"{ESCAPE}32mSucceeded{ESCAPE}0m" in sent
    assert f"{ESCAPE}31mFailed " in sent
    assert not re.search(r" \r?\n", re.sub(r"\x1b\[[\d;]*m", "", sent))  # blanks at a line's end break it when copied


def test_a_terminal_with_no_color_gets_none(ended: Machine) -> None:
    """The variable that https://no-color.org names; the words are the same."""
    sent = at_terminal(ended, NO_COLOR="1")

    assert "Succeeded" in sent
    assert "\x1b[3" not in sent


def test_what_is_no_terminal_gets_no_colours(ended: Machine) -> None:
    """Not one escape, whatever TERM says."""
    done = subprocess.run(command(ended), env=environment(), capture_output=True, text=True, check=True)

    assert "Succeeded" in done.stdout
    assert ESCAPE not in done.stdout
