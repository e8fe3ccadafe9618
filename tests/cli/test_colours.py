"""Colours are for people at a terminal: a real one, a pseudo-terminal of this machine."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from machine import Machine

ESCAPE = "\x1b["


def environment(**more: str) -> dict[str, str]:
    """Return this process's, without what decides about colours, as at a terminal that has some."""
    deciding = {"NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"}
    return {name: value for name, value in os.environ.items() if name not in deciding} | {"TERM": "xterm"} | more


def test_a_terminal_gets_colours(ended: Machine) -> None:
    """Each phase in its own."""
    sent = ended.at_terminal("list", env=environment())

    assert f"{ESCAPE}32mSucceeded{ESCAPE}0m" in sent
    assert f"{ESCAPE}31mFailed " in sent
    assert not re.search(r" \r?\n", re.sub(r"\x1b\[[\d;]*m", "", sent))  # blanks at a line's end break it when copied


def test_a_terminal_with_no_color_gets_none(ended: Machine) -> None:
    """The variable that https://no-color.org names; the words are the same."""
    sent = ended.at_terminal("list", env=environment(NO_COLOR="1"))

    assert "Succeeded" in sent
    assert "\x1b[3" not in sent
