"""Tests of colours at a terminal: a real pseudo-terminal of this machine."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from machine import Machine

ESCAPE = "\x1b["


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment, without variables that control colours, for a terminal with colours."""
    deciding = {"NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"}
    return {name: value for name, value in os.environ.items() if name not in deciding} | {"TERM": "xterm"} | more


def test_a_terminal_gets_colours(ended: Machine) -> None:
    """Each phase has its own colour."""
    sent = ended.at_terminal("list", env=environment())

    assert f"{ESCAPE}32mSucceeded{ESCAPE}0m" in sent
    assert f"{ESCAPE}31mFailed " in sent
    assert not re.search(r" \r?\n", re.sub(r"\x1b\[[\d;]*m", "", sent))  # trailing blanks break a line when copied


def test_a_terminal_with_no_color_gets_none(ended: Machine) -> None:
    """https://no-color.org defines the variable; the text is the same."""
    sent = ended.at_terminal("list", env=environment(NO_COLOR="1"))

    assert "Succeeded" in sent
    assert "\x1b[3" not in sent
