"""Output of commands: values for programs, exit codes, and one sentence for each failure."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, TypeVar

import click
import yaml

from ptjob_provider.cli.printable import as_json_escapes, printable, say
from ptjob_provider.core.errors import InvalidSpec, JobFailed, JobNotFound, NotThere, PTJobError, UnsupportedByBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

T = TypeVar("T")

EXIT_FAILED = 1
EXIT_USAGE = click.UsageError.exit_code
EXIT_NOT_FOUND = 3
EXIT_TRY_AGAIN = 75
EXIT_INTERRUPTED = 130


class Refused(click.ClickException):
    """A failure with a message for people and an exit code for programs."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(printable(message))
        self.__dict__["exit_code"] = code


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine; translate the core's errors to messages and exit codes, and Ctrl-C to 130."""
    try:
        return asyncio.run(work)
    except PTJobError as error:
        raise refusal(error) from error
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


def refusal(error: PTJobError) -> Refused:
    """Return an error of the core as a command's error."""
    if isinstance(error, JobNotFound | NotThere):
        return Refused(str(error), EXIT_NOT_FOUND)
    if isinstance(error, InvalidSpec | UnsupportedByBackend):
        return Refused(str(error), EXIT_USAGE)
    # A failed job may be worth a retry although the same command would most likely fail again; 75 tells scripts to
    # rerun.
    is_passing = error.diagnosis.passes if isinstance(error, JobFailed) else error.retryable
    return Refused(str(error), EXIT_TRY_AGAIN if is_passing else EXIT_FAILED)


def for_each(names: Iterable[str], do: Callable[[str], None]) -> None:
    """Call it for each name, as kubectl does: an error is printed at once, and the others follow.

    The exit code is that of the errors if they agree, else 1.
    """
    codes = set()
    for name in names:
        try:
            do(name)
        except Refused as refused:
            refused.show()
            codes.add(refused.exit_code)
    if codes:
        raise SystemExit(codes.pop() if len(codes) == 1 else EXIT_FAILED)


def emit(value: object, output: str) -> None:
    """Print for programs; unprintable characters are escaped as JSON and YAML do."""
    if output == "json":
        say(as_json_escapes(json.dumps(value, indent=2, ensure_ascii=False)))
        return
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    is_plain = text == printable(text)
    say(text if is_plain else yaml.safe_dump(value, sort_keys=False, allow_unicode=False), nl=False)


def emit_rows(names: Iterable[str], rows: object, output: str) -> None:
    """Print many values for programs; `name` prints one name per line."""
    if output != "name":
        emit(rows, output)
        return
    for name in names:
        say(name)


def notice(text: str) -> None:
    """Print a message to stderr, which keeps it out of pipes."""
    say(f"── {text}", err=True)
