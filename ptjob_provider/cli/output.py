"""Output of commands: text for people, values for programs, exit codes, and one sentence for each failure.

Jobs, files and servers choose many of the printed texts. Their control characters are instructions to a terminal, so
they are replaced by escape sequences. Only a log that goes to a file or a program is left unchanged.
"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ptjob_provider.core.errors import InvalidSpec, JobFailed, JobNotFound, NotThere, PTJobError, UnsupportedByBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

T = TypeVar("T")

EXIT_FAILED = 1
EXIT_USAGE = click.UsageError.exit_code
EXIT_NOT_FOUND = 3
EXIT_TRY_AGAIN = 75
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
"""All of C0 and C1 except tab and line feed, what turns a text's direction, and the surrogates of undecodable bytes."""
_LAST_C1 = 0x9F


def printable(text: str) -> str:
    """Return the text with control characters escaped, such as ESC as a backslash and `x1b`."""
    return re.sub(CONTROL, _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}" if ord(match[0]) <= _LAST_C1 else f"\\u{ord(match[0]):04x}"


def say(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print a text, with its control characters escaped."""
    click.echo(printable(text), nl=nl, err=err)  # noqa: TID251 - the one place that may


def say_logged(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print a line of a job's log: unchanged, except at a terminal.

    There, a line that overwrites itself, as progress bars do, is printed in its last state, over its earlier ones.
    """
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        _, is_overwritten, state = text.rstrip("\r").rpartition("\r")
        if is_overwritten:
            click.echo("\r", nl=False, err=err)  # noqa: TID251 - the cursor's, not the text's
        say(state, nl=nl, err=err)
    else:
        click.echo(text, nl=nl, err=err, color=True)  # noqa: TID251 - raw; click removes colours by itself


def notice(text: str) -> None:
    """Print a message to stderr, which keeps it out of pipes."""
    say(f"── {text}", err=True)


def emit(value: object, output: str) -> None:
    """Print a value for programs; unprintable characters are escaped as JSON and YAML do."""
    if output == "json":
        import json

        text = json.dumps(value, indent=2, ensure_ascii=False)
        say(re.sub(CONTROL, lambda match: f"\\u{ord(match[0]):04x}", text))
        return
    import yaml

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    say(text if text == printable(text) else yaml.safe_dump(value, sort_keys=False), nl=False)


def emit_rows(names: Iterable[str], rows: object, output: str) -> None:
    """Print rows for programs; with `name` as the output, print one name per line instead."""
    if output != "name":
        emit(rows, output)
        return
    for name in names:
        say(name)


class Failure(click.ClickException):
    """A failure with a message for people and an exit code for programs."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(printable(message))
        self.__dict__["exit_code"] = code


def failure_of(error: PTJobError) -> Failure:
    """Return an error of the core as a command's error."""
    if isinstance(error, JobNotFound | NotThere):
        return Failure(str(error), EXIT_NOT_FOUND)
    if isinstance(error, InvalidSpec | UnsupportedByBackend):
        return Failure(str(error), EXIT_USAGE)
    # 75 tells scripts to run the same command again. Some causes of a failed job are worth the limited retries of a
    # task (`retryable`), but would most likely make this command fail again.
    is_passing = error.diagnosis.passes if isinstance(error, JobFailed) else error.retryable
    return Failure(str(error), EXIT_TRY_AGAIN if is_passing else EXIT_FAILED)


def run(work: Coroutine[Any, Any, T], *, cancelled: int = EXIT_INTERRUPTED) -> T:
    """Run the coroutine; translate the core's errors to messages and exit codes, Ctrl-C to 130, and other signals.

    Args:
        work: the coroutine.
        cancelled: the exit code if it is cancelled by another signal, see `cancel_on`.
    """
    import asyncio

    try:
        return asyncio.run(work)
    except PTJobError as error:
        raise failure_of(error) from error
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except asyncio.CancelledError:
        raise SystemExit(cancelled) from None


def cancel_on(*signals: int) -> None:
    """Cancel the current task on the first of these signals, so that it deletes what it has started.

    Only the first one counts: a closed terminal sends two, and the deletion has its own timeouts.
    """
    import asyncio

    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None  # noqa: S101 - `asyncio.run` made it

    signalled = asyncio.Event()

    def cancel() -> None:
        if not signalled.is_set():
            signalled.set()
            task.cancel()

    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # only the main thread may add a handler
        for each in signals:
            loop.add_signal_handler(each, cancel)


def for_each(jobs: Iterable[T], do: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    """Run `do` for each job, as kubectl does: print an error at once, and continue with the next job.

    The exit code is that of the errors if they agree, else 1.
    """
    codes = set()
    for job in jobs:
        try:
            run(do(job))
        except Failure as refused:
            refused.show()
            codes.add(refused.exit_code)
    if codes:
        raise SystemExit(codes.pop() if len(codes) == 1 else EXIT_FAILED)
