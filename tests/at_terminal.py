"""A command at a pseudo-terminal of 80 columns, and what is on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def screen(sent: str) -> list[str]:
    """Return the lines that a terminal shows after these characters; colours are left out."""
    lines, column = [""], 0
    for each in re.findall(r"\x1b\[[\d;?]*[a-zA-Z]|.", sent, re.DOTALL):
        if each == "\n":
            lines.append("")
        elif each == "\r":
            column = 0
        elif each == "\x1b[1A":
            lines.pop()
        elif each == "\x1b[2K":
            lines[-1] = " " * column
        elif not each.startswith("\x1b"):
            lines[-1] = lines[-1][:column].ljust(column) + each + lines[-1][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


class AtTerminal:
    """A command whose stdout and stderr are one terminal."""

    def __init__(self, words: list[str], env: Mapping[str, str] | None = None) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = env or {**os.environ, "TERM": "xterm"}
        self.process = subprocess.Popen(
            ["env", "--default-signal=INT", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        self.sent = b""

    @property
    def shown(self) -> list[str]:
        return screen(self.sent.decode(errors="replace").replace("\r\n", "\n\r"))

    def until(self, holds: Callable[[list[str]], bool]) -> list[str]:
        """Read until the screen is so, and return its lines."""
        while not holds(self.shown):
            self.sent += os.read(self.ours, 4096)
        return self.shown

    def end(self) -> list[str]:
        """Read to the end, and return the screen's lines without messages about the job."""
        try:
            while chunk := os.read(self.ours, 4096):
                self.sent += chunk
        except OSError:  # the last process that had it open has ended
            pass
        self.process.wait()
        os.close(self.ours)
        return [line for line in self.shown if not line.startswith("──")]
