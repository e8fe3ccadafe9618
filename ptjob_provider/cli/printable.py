"""The door through which the command line prints: what others wrote is shown as text and moves no cursor.

Jobs, files and servers choose many of the texts that are printed. Their control characters are instructions to a
terminal, so they are replaced by what a programmer writes for them. Only a log that goes into a file or a program stays
as it was written.
"""

from __future__ import annotations

import re
import sys

import click

CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
"""All of C0 and C1 but tab and line feed, and the code points that stand for bytes of a name that is no text."""


def printable(text: str) -> str:
    """Return the text with control characters written out, such as ESC as a backslash and `x1b`."""
    return re.sub(CONTROL, _written, text)


def as_json_escapes(text: str) -> str:
    """Return the text of a JSON value with the control characters in its strings as JSON writes them."""
    return re.sub(CONTROL, lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print a text of which any part may be somebody else's."""
    click.echo(printable(text), nl=nl, err=err)  # noqa: TID251 - here is the door


def say_logged(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print a line of a job's log: as it was written, except at a terminal."""
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        say(of_last_return(text), nl=nl, err=err)
    else:
        click.echo(text, nl=nl, err=err, color=True)  # noqa: TID251 - raw; click takes colours out by itself


def of_last_return(line: str) -> str:
    """Return what a terminal would show at last of a line that was overwritten, as progress bars do."""
    return line.rstrip("\r").rpartition("\r")[2]


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004 - the last code of two digits
