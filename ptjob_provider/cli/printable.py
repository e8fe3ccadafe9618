"""Prints all output of the command line; control characters of foreign texts are escaped.

Jobs, files and servers choose many of the printed texts. Their control characters are instructions to a terminal, so
they are replaced by escape sequences. Only a log that goes to a file or a program is left unchanged.
"""

from __future__ import annotations

import re
import sys

import click

CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
"""All of C0 and C1 except tab and line feed, and the surrogates that stand for undecodable bytes of a name."""


def printable(text: str) -> str:
    """Return the text with control characters escaped, such as ESC as a backslash and `x1b`."""
    return re.sub(CONTROL, _written, text)


def as_json_escapes(text: str) -> str:
    """Return the text of a JSON value with the control characters in its strings escaped as in JSON."""
    return re.sub(CONTROL, lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print a text that may contain foreign parts."""
    click.echo(printable(text), nl=nl, err=err)  # noqa: TID251 - the one place that may


def say_logged(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print a line of a job's log: unchanged, except at a terminal."""
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        say(of_last_return(text), nl=nl, err=err)
    else:
        click.echo(text, nl=nl, err=err, color=True)  # noqa: TID251 - raw; click removes colours by itself


def of_last_return(line: str) -> str:
    """Return the last state of a line that overwrites itself, as progress bars do."""
    return line.rstrip("\r").rpartition("\r")[2]


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004 - the last code with two digits
