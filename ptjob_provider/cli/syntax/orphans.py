"""`orphans`: options for jobs that no task waits for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from ptjob_provider.cli.parameters import airflow_options, output_option, pass_place, place_options, span

if TYPE_CHECKING:
    from datetime import timedelta

    from ptjob_provider.cli.place import Place


@click.command("orphans")
@airflow_options
@click.option("--instance", metavar="NAME", help="[ptjob] instance of that Airflow.  [default: the id it reports]")
@click.option(
    "--older-than", callback=span, default="10m", metavar="SPAN", show_default=True, help="Ignore younger jobs."
)
@click.option("--delete", is_flag=True, help="Delete the running ones; ended jobs and all claims stay.")
@output_option
@place_options
@pass_place
def orphans(
    place: Place,
    *,
    airflow_url: str | None,
    airflow_user: str | None,
    instance: str | None,
    older_than: timedelta,
    delete: bool,
    output: str | None,
) -> None:
    """List orphaned jobs: no task of Airflow waits for them.

    Only running jobs. Without --airflow-url, all running jobs of Airflow tasks.

    \b
    ptjob orphans --airflow-url https://airflow.example.com --delete
    ptjob orphans --older-than 2d
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli import orphans as sweeping

    if airflow_url is None:
        if delete:
            raise click.UsageError("--delete needs --airflow-url; by your own judgement: ptjob delete NAME...")
        sweeping.show_live(place, older_than=older_than, output=output)
        return
    waiters = sweeping.waiters_of(airflow_url, airflow_user, os.environ)
    sweeping.show_orphans(
        place, waiters, name=instance or place.instance, older_than=older_than, delete=delete, output=output
    )
