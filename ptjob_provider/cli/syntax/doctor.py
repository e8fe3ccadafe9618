"""`doctor`: what a command line may say about whether jobs can run here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ptjob_provider.cli.parameters import namespace_option

if TYPE_CHECKING:
    from ptjob_provider.cli.place import Place


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml", "name"]),
    help="For programs, name: what is missing; without it, for people.",
)
@namespace_option
@click.pass_obj
def doctor(place: Place, output: str | None) -> None:
    """Look whether jobs can run here, and say what to do where they cannot.

    Nothing is changed. The exit code is 1 if something is missing that every job needs.
    """
    from ptjob_provider.cli import around

    around.doctor(place, output=output)
