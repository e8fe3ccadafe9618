"""`doctor`: options of the check whether jobs can run here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from ptjob_provider.cli.parameters import airflow_options, pass_place, place_options

if TYPE_CHECKING:
    from ptjob_provider.cli.place import Place


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml", "name"]),
    help="Output format; name prints what is missing.",
)
@airflow_options
@place_options
@pass_place
def doctor(place: Place, *, output: str | None, airflow_url: str | None, airflow_user: str | None) -> None:
    """Check whether jobs can run here, and say what to do.

    With --airflow-url also whether the id that tells that Airflow's jobs from others' is its own: a copied database
    has the original's. Ask where Airflow is configured, on a worker for example. Nothing is changed. The exit code is
    1 if something is missing that every job needs.
    """
    from ptjob_provider.cli import inspect, orphans

    waiters = orphans.waiters_of(airflow_url, airflow_user, os.environ) if airflow_url else None
    inspect.doctor(place, waiters, output=output)
