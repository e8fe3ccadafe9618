"""`list`, `get`, `events`, `delete`, `suspend`, `resume`: options for existing jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ptjob_provider.cli.parameters import (
    all_namespaces_option,
    kind_option,
    name_argument,
    names_argument,
    output_option,
    pass_place,
    place_options,
    span,
    wide_output_option,
)

if TYPE_CHECKING:
    from datetime import timedelta

    from ptjob_provider.cli.place import Place


@click.command("list")
@click.option(
    "-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only jobs with this label; repeatable."
)
@wide_output_option
@kind_option
@all_namespaces_option
@place_options
@pass_place
def list_(place: Place, labels: tuple[str, ...], output: str | None) -> None:
    """List the jobs of the namespace, oldest first.

    REASON says what a job waits for or what ended it, as far as that is kept on the job: `ptjob get NAME` looks at its
    pods. RAN is how long it has run, `<5m` at most so long, `-` not at all.
    """
    from ptjob_provider.cli import commands

    commands.list_jobs(place, labels=labels, output=output)


@click.command()
@name_argument
@click.option(
    "--outputs",
    is_flag=True,
    help="Inspect the outputs again; on a cluster this starts a pod.  [default: show the last report]",
)
@click.option("-e", "--events", is_flag=True, help="Also show the events about the job and its pods.")
@output_option
@kind_option
@place_options
@pass_place
def get(place: Place, name: str, *, outputs: bool, events: bool, output: str | None) -> None:
    """Show one job: replicas, outputs, why it failed or waits.

    `waited` is the time until its first replica ran, `ran` the time since. ENDED WITH has each run's exit code and the
    kubelet's word for it.
    """
    from ptjob_provider.cli import commands

    more = {"events": commands.event_rows(place, name)} if events and output else {}
    commands.get(place, name, outputs=outputs, output=output, more=more)
    if events and not output:
        commands.events(place, name, output=None)


@click.command()
@name_argument
@output_option
@kind_option
@place_options
@pass_place
def events(place: Place, name: str, output: str | None) -> None:
    """Show the events of a job and its pods.

    The oldest comes first. A cluster keeps its events for an hour.
    """
    from ptjob_provider.cli import commands

    commands.events(place, name, output=output)


@click.command()
@names_argument
@click.option("--ignore-not-found", is_flag=True, help="Treat a job that does not exist as deleted.")
@kind_option
@place_options
@pass_place
def delete(place: Place, names: tuple[str, ...], *, ignore_not_found: bool) -> None:
    """Delete jobs and wait until they are gone.

    Files on claims stay.
    """
    from ptjob_provider.cli import commands
    from ptjob_provider.cli import output as answers

    answers.for_each(names, lambda name: commands.delete(place, name, ignore_not_found=ignore_not_found))


@click.command()
@click.option(
    "-s",
    "--since",
    callback=span,
    default="7d",
    show_default=True,
    metavar="SPAN",
    help="Minimum time since the job ended.",
)
@click.option("--dry-run", is_flag=True, help="List the jobs without deleting them.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@kind_option
@all_namespaces_option
@place_options
@pass_place
def prune(place: Place, *, since: timedelta, dry_run: bool, yes: bool) -> None:
    """Delete the jobs that ended a while ago.

    They are listed first, and on a terminal you are asked to confirm. Files on claims stay.

    \b
    ptjob prune --since 30d
    ptjob prune --since 0s --dry-run
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli import commands

    commands.prune(place, since=since, dry_run=dry_run, yes=yes)


@click.command()
@names_argument
@kind_option
@place_options
@pass_place
def suspend(place: Place, names: tuple[str, ...]) -> None:
    """Suspend jobs: their pods are deleted until they are resumed.

    What ran is stopped; the training begins again from its checkpoint, if it keeps one.
    """
    from ptjob_provider.cli import commands
    from ptjob_provider.cli import output as answers

    answers.for_each(names, lambda name: commands.suspend(place, name, suspend=True))


@click.command()
@names_argument
@kind_option
@place_options
@pass_place
def resume(place: Place, names: tuple[str, ...]) -> None:
    """Resume suspended jobs."""
    from ptjob_provider.cli import commands
    from ptjob_provider.cli import output as answers

    answers.for_each(names, lambda name: commands.suspend(place, name, suspend=False))
