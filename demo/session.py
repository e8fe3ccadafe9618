"""Run a demonstration, and stop everything that it has started, also after Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console

from demo.folder import ROOT
from demo.processes import StackFailed
from demo.stack import StackConfig
from ptjob_provider.core import kinds
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.run.lookup import list_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from demo.folder import Folder
    from demo.place import Place
    from demo.stack import Stack


class DemonstrationFailed(RuntimeError):
    """A run or a program of the demonstration failed, although Airflow works."""


def make_console() -> Console:
    """Return the console; its lines are wide if the output is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def stack_config(
    folder: Folder, place: Place, *, port: int = 0, settings: Mapping[str, str] | None = None
) -> StackConfig:
    """Return a configuration of Airflow with this repository's DAGs, deferrable operators and jobs in this place.

    `settings` are further environment variables.
    """
    return StackConfig(
        home=folder.home,
        dags=ROOT / "dags",
        port=port,
        settings={
            "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True",
            **place.settings,
            **(settings or {}),
        },
        migrated_database=folder.path.parent / f"migrated-{version('apache-airflow')}.db",
    )


def heed_signals() -> None:
    """Turn the signals that end this process into KeyboardInterrupt, so that the clean-up runs."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def demonstrate(stack: Stack, place: Place, console: Console, show: Callable[[], int]) -> int:
    """Run `show`, stop everything that was started, and return the exit code."""
    try:
        return show()
    except KeyboardInterrupt:
        console.print("\ninterrupted")
        return 130
    except (DemonstrationFailed, StackFailed, TimeoutError, PTJobError) as error:
        console.print(f"[red]the demonstration failed:[/] {error}", soft_wrap=True)
        return 1
    finally:
        ignore_interrupts()
        console.print("[dim]stopping what was started …[/]")
        stack.stop()
        clean_up(place, console)


def clean_up(place: Place, console: Console) -> None:
    """Stop running jobs, or report why that is impossible."""
    try:
        asyncio.run(stop_jobs(place))
    except PTJobError as error:
        console.print(f"[red]jobs may still run:[/] {error}", soft_wrap=True)


async def stop_jobs(place: Place) -> None:
    """Delete the jobs that have not ended; their pods may run until the end of their grace period."""
    backend = place.backend()
    for job in await list_jobs(backend, place.namespace, {}):
        if not kinds.kind_of(job).read_status(job).phase.is_terminal:
            await backend.delete(JobRef.of(job))


def ignore_interrupts() -> None:
    """Ignore interrupts from now on, until this process ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt(number)
