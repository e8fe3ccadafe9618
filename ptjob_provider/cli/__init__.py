"""`ptjob`: submit, follow, inspect and delete training jobs and read their logs, from a terminal or a program.

Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 no such job or claim; 75 try again later (sysexits'
EX_TEMPFAIL); 130 interrupted, 143 terminated. docs/how-to/command-line.md defines their meaning.

This module defines the options that precede a command. Each command is defined in another module of this package, which
is imported only when the command runs or shows its help, so that `ptjob --help` responds at once. The names and
one-line help texts of all commands are therefore repeated here; a test compares them with the commands.
"""

from __future__ import annotations

import importlib
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ptjob_provider.cli.output import failure_of, printable
from ptjob_provider.cli.parameters import group_target_options
from ptjob_provider.core.errors import PTJobError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Train": {
        "submit": ("submit", "Submit a job and return."),
        "run": ("submit", "Submit a job and follow it to its end."),
        "render": ("submit", "Print the manifest that `submit` would send."),
    },
    "Look": {
        "list": ("jobs", "List the jobs of the namespace, oldest first."),
        "get": ("jobs", "Show one job: replicas, outputs, why it failed or waits."),
        "logs": ("logs", "Print a replica's log."),
        "follow": ("submit", "Follow a job to its end, as `run` does."),
        "events": ("jobs", "Show the events of a job and its pods."),
        "tensorboard": ("tensorboard", "Show a job's curves in a browser on this machine."),
        "top": ("top", "Show what nodes and jobs have and use."),
    },
    "Change": {
        "delete": ("jobs", "Delete jobs and wait until they are gone."),
        "prune": ("jobs", "Delete the jobs that ended a while ago."),
        "suspend": ("jobs", "Suspend jobs: their pods are deleted until they are resumed."),
        "resume": ("jobs", "Resume suspended jobs."),
    },
    "Other": {
        "data": ("data", "List and create claims, and copy files to and from them."),
        "doctor": ("doctor", "Check whether jobs can run here, and say what to do."),
    },
}
"""Heading → command → its module and its one-line help, in the order in which a user needs them."""


class Commands(click.Group):
    """Group of all commands; a command's module is imported when the command is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in the order of `SECTIONS`."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import and return a command; None if the name is unknown."""
        for commands in SECTIONS.values():
            if cmd_name in commands:
                module = vars(importlib.import_module(f"{__name__}.{commands[cmd_name][0]}"))
                command: click.Command = module.get(f"{cmd_name}_") or module[cmd_name]
                return command
        return None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, without importing their modules, and then the options."""
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])
        click.Command.format_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options that precede the command."""
        with _replacement_of_unknown_flag():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and report an error of the core like any other."""
        try:
            with _replacement_of_unknown_flag():
                return super().invoke(ctx)
        except PTJobError as error:
            raise failure_of(error) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for one of Arena's that is not here, name its replacement."""
        from ptjob_provider.cli.arena import COMMANDS

        if args[0] in COMMANDS:
            raise click.UsageError(f"{args[0]!r} is not here: {COMMANDS[args[0]]}", ctx=ctx)
        return super().resolve_command(ctx, args)


@contextmanager
def _replacement_of_unknown_flag() -> Iterator[None]:
    """Name the replacement of a flag that Arena has and `ptjob` does not."""
    try:
        yield
    except click.NoSuchOption as error:
        from ptjob_provider.cli.arena import FLAGS

        if error.option_name not in FLAGS:
            raise
        text = f"{error.option_name} is not here: {FLAGS[error.option_name]}"
        raise click.UsageError(text, ctx=error.ctx) from None


_NAMES = {name: click.Command(name) for commands in SECTIONS.values() for name in commands}
"""Names of the commands, which click completes and suggests; `get_command` imports the command itself."""

_EPILOG = "Use ptjob COMMAND --help for a command's options and ptjob run --help-all for all flags of a job."


@click.group(cls=Commands, commands=_NAMES, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@group_target_options
@click.option(
    "--loglevel",
    type=click.Choice(["debug", "info", "warning", "warn", "error"], case_sensitive=False),
    default="warning",
    show_default=True,
    help="Level of ptjob's own log messages.",
)
@click.version_option(package_name="ptjob-provider")
def main(*, loglevel: str) -> None:
    """Submit PyTorch training jobs and look at them, on a cluster or on this machine.

    Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no such job or claim, 75 try again later, 130 interrupted,
    143 terminated.
    """
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())
    if loglevel.lower() in {"debug", "info"}:
        handler = logging.StreamHandler()
        handler.setFormatter(_PrintableFormatter("%(levelname)s %(message)s"))
        logging.basicConfig(level=loglevel.upper(), handlers=[handler])


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


__all__ = ["main"]
