"""Group of commands that imports a command's module when it is run or asked for its own help.

`ptjob --help` imports none.

Therefore the group has the commands' names and one-line help itself; a test compares these lines with the commands.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class LazyGroup(click.Group):
    """A group whose commands are in separate modules.

    Attributes:
        sections: heading → command name → the command's module and its one-line help.
    """

    sections: ClassVar[Mapping[str, Mapping[str, tuple[str, str]]]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names, in the order of a job's life."""
        return [name for commands in self.sections.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Load one command; None if the name is unknown."""
        for commands in self.sections.values():
            if cmd_name in commands:
                file, _ = commands[cmd_name]
                there = vars(importlib.import_module(file))
                found = there.get(f"{cmd_name}_") or there[cmd_name]
                assert isinstance(found, click.Command)  # noqa: S101 - a test loads them all
                return found
        return None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands before the options."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the commands' help without loading them."""
        for heading, commands in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words before the command; for a flag of Arena's that does not exist here, name the replacement."""
        with _told_why():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; for an unknown flag, name the replacement."""
        with _told_why():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for a misspelt one, suggest similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from ptjob_provider.cli.arena import COMMANDS  # noqa: PLC0415 - only for a typo

            if args[0] in COMMANDS:
                raise click.UsageError(f"{args[0]!r} is not here: {COMMANDS[args[0]]}", ctx=ctx) from None
            raise click.UsageError(error.message + _alike(args[0], self.list_commands(ctx)), ctx=ctx) from None


@contextmanager
def _told_why() -> Iterator[None]:
    try:
        yield
    except click.NoSuchOption as error:
        from ptjob_provider.cli.arena import FLAGS  # noqa: PLC0415 - only for a typo

        if error.option_name in FLAGS:
            text = f"{error.option_name} is not here: {FLAGS[error.option_name]}"
            raise click.UsageError(text, ctx=error.ctx) from None
        raise


def _alike(name: str, known: Sequence[str]) -> str:
    import difflib  # noqa: PLC0415 - only for a typo

    close = difflib.get_close_matches(name, known)
    return f" Did you mean {' or '.join(close)}?" if close else ""
