"""What `ptjob orphans` does: list the jobs that run, ask Airflow which of them tasks wait for, stop the others."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from ptjob_provider.cli import tables
from ptjob_provider.cli.airflow_api import AirflowTasks
from ptjob_provider.cli.answers import EXIT_TRY_AGAIN, EXIT_USAGE, Refused, emit_rows, run
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.orphans import live_jobs, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from ptjob_provider.cli.place import Place
    from ptjob_provider.core.orphans import Finding, Waiters


def waiters_of(url: str, user: str | None, environ: Mapping[str, str]) -> Waiters:
    """Return who knows which tasks wait: the Airflow at this address.

    Raises:
        Refused: that is no address, or there is nobody to ask for the password.
    """
    token = environ.get("PTJOB_AIRFLOW_TOKEN", "")
    password = environ.get("PTJOB_AIRFLOW_PASSWORD", "")
    if user and not token and not password:
        if not sys.stdin.isatty():
            nobody = "nobody can be asked for the password, there is no terminal"
            raise Refused(f"--airflow-user: {nobody}; set $PTJOB_AIRFLOW_PASSWORD, or $PTJOB_AIRFLOW_TOKEN", EXIT_USAGE)
        password = click.prompt(f"Password of {user}", hide_input=True, err=True)
    try:
        return AirflowTasks(url, token=token, user=user or "", password=password)
    except InvalidSpec as error:
        raise Refused(str(error), EXIT_USAGE) from error


def show_live(place: Place, *, older_than: timedelta, output: str | None) -> None:
    """Print every job that an orchestrator created and that uses something, for a person to decide."""
    now = datetime.now(UTC)
    found = [job for job in run(live_jobs(place.open(), place.namespace)) if now - job.created_at >= older_than]
    if output:
        emit_rows([job.ref.name for job in found], [job.to_dict() for job in found], output)
    elif found:
        tables.show(tables.live(found, now=now))
    else:
        click.echo(f"no live jobs older than {tables.duration(older_than)} {_where(place)}", err=True)


def show_orphans(
    place: Place, waiters: Waiters, *, instance: str, older_than: timedelta, delete: bool, output: str | None
) -> None:
    """Print the jobs that nobody waits for, each stopped before if that is asked for.

    Raises:
        Refused: of some jobs it could not be said, or they could not be stopped; they are printed with the reason.
    """
    found = run(_swept(place, waiters, instance=instance, older_than=older_than, delete=delete))
    if output:
        names = [finding.job.ref.name for finding in found if finding.why]
        emit_rows(names, [finding.to_dict() for finding in found], output)
    elif found:
        tables.show(tables.orphans(found, now=datetime.now(UTC)))
    else:
        click.echo(f"no jobs of {instance} that nobody waits for {_where(place)}", err=True)
    failed = [finding for finding in found if finding.error]
    if failed:
        raise Refused(f"{len(failed)} of {len(found)} jobs: {failed[0].error}", EXIT_TRY_AGAIN)


async def _swept(
    place: Place, waiters: Waiters, *, instance: str, older_than: timedelta, delete: bool
) -> list[Finding]:
    sweeping = sweep(place.open(), waiters, namespace=place.namespace, instance=instance, grace=older_than, stop=delete)
    return [finding async for finding in sweeping]


def _where(place: Place) -> str:
    return f"in namespace {place.namespace} of {place}"
