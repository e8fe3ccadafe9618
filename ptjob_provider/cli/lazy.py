"""A group of commands that loads a command's file when it is run, or asked for its own help: `ptjob --help` loads none.

So the group has to know, without loading them, what its commands are called and what they do in one line; a test holds
these lines against the commands themselves.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, ClassVar

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class LazyGroup(click.Group):
    """A group whose commands are in files of their own.

    Attributes:
        sections: heading → name of a command → the file that has it and what it does in one line.
    """

    sections: ClassVar[Mapping[str, Mapping[str, tuple[str, str]]]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names, in the order in which a job is lived."""
        return [name for commands in self.sections.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Load one command; None if there is none of that name."""
        for commands in self.sections.values():
            if cmd_name in commands:
                file, _ = commands[cmd_name]
                there = vars(importlib.import_module(file))
                found = there.get(f"{cmd_name}_") or there[cmd_name]
                assert isinstance(found, click.Command)  # noqa: S101 - a test loads them all
                return found
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write what there is, without loading it."""
        for heading, commands in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a misspelt one is answered with those that are alike."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(error.message + _alike(args[0], self.list_commands(ctx)), ctx=ctx) from None


def _alike(name: str, known: Sequence[str]) -> str:
    import difflib  # noqa: PLC0415 - only for a slip

    close = difflib.get_close_matches(name, known)
    return f" Did you mean {' or '.join(close)}?" if close else ""
