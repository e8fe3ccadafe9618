"""`logs` and `follow`: options for a job's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ptjob_provider.cli.parameters import (
    WholeNumber,
    kind_option,
    name_argument,
    pass_place,
    place_options,
    replicas,
    span,
)

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from ptjob_provider.cli.place import Place


def _instant(context: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Read an RFC 3339 instant; one without an offset is UTC."""
    from datetime import UTC, datetime

    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        rule = f"{value!r} is not allowed; allowed: an instant such as 2026-11-22T09:30:00Z"
        raise click.BadParameter(rule, ctx=context, param=param) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@click.command()
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Stream the log until the container ends.")
@click.option("-t", "--tail", type=WholeNumber(min=-1), metavar="N", help="Begin with the last N lines; -1: all.")
@click.option(
    "-i",
    "--replica",
    "--instance",
    metavar="REPLICA",
    shell_complete=replicas,
    help="A pod's name, its end (worker-0) or a rank.  [default: rank 0]",
)
@click.option("--all", "every", is_flag=True, help="Print the logs of all replicas, each line with its replica's name.")
@click.option("--since", callback=span, metavar="SPAN", help="Only lines newer than this: 90s, 10m, 2h.")
@click.option("--since-time", callback=_instant, metavar="INSTANT", help="Only lines after this time (RFC 3339).")
@click.option("--timestamps", is_flag=True, help="Print the time of each line.")
@click.option("-c", "--container", metavar="NAME", help="Another container of the pod.  [default: the training]")
@kind_option
@place_options
@pass_place
def logs(
    place: Place,
    name: str,
    *,
    follow: bool,
    tail: int | None,
    replica: str | None,
    every: bool,
    since: timedelta | None,
    since_time: datetime | None,
    timestamps: bool,
    container: str | None,
) -> None:
    """Print a replica's log."""
    from ptjob_provider.cli import logs as reading

    if every and replica is not None:
        raise click.UsageError("--all and --replica exclude each other")
    if since is not None and since_time is not None:
        raise click.UsageError("--since and --since-time exclude each other")
    wanted = reading.Wanted.of(
        follow=follow, tail=tail, since=since, since_time=since_time, timestamps=timestamps, container=container
    )
    reading.show(place, name, wanted, replica=replica, every=every)


@click.command()
@name_argument
@click.option(
    "--adopt",
    is_flag=True,
    help="Treat a job that something else created as your own: store its result on it, stop what it leaves running.",
)
@click.option("--timeout", callback=span, metavar="SPAN", help="Stop the job, and fail, if it takes longer.")
@click.option("--delete-on-interrupt", is_flag=True, help="Delete the job on Ctrl-C.  [default: the job continues]")
@click.option(
    "-o", "--output", type=click.Choice(["json", "yaml", "name"]), help="Print the result, or the name, at the end."
)
@kind_option
@place_options
@pass_place
def follow(
    place: Place,
    name: str,
    *,
    adopt: bool,
    timeout: timedelta | None,
    delete_on_interrupt: bool,
    output: str | None,
) -> None:
    """Follow a job to its end, as `run` does.

    Rank 0's log is shown, and the exit code says how it ended. A job that does not start within 20 minutes, or fails
    again and again, counts as failed, but is left as it is: only --timeout and --delete-on-interrupt delete.
    """
    from ptjob_provider.cli import running

    if timeout is not None and not adopt:
        raise click.UsageError("--timeout stops the job, so it needs --adopt")
    ending = running.Ending(timeout=timeout, leave_stuck=True, delete_on_interrupt=delete_on_interrupt, output=output)
    running.follow_existing(place, name, ending, adopt=adopt)
