"""Implements `ptjob orphans`: lists running jobs, checks in Airflow whether their tasks wait, stops the others."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from ptjob_provider.cli import tables
from ptjob_provider.cli.airflow_api import AirflowTasks
from ptjob_provider.cli.output import EXIT_TRY_AGAIN, EXIT_USAGE, Refused, emit_rows, run
from ptjob_provider.cli.printable import say
from ptjob_provider.core.errors import InvalidSpec, PermissionDenied
from ptjob_provider.core.identity import Instance
from ptjob_provider.core.installation_id import instance_of, names_host
from ptjob_provider.core.run.orphans import live_jobs, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from ptjob_provider.cli.place import Place
    from ptjob_provider.core.run.orphans import Orphan


def waiters_of(url: str, user: str | None, environ: Mapping[str, str]) -> AirflowTasks:
    """Return the client for the Airflow at this address.

    Raises:
        Refused: the address is invalid, or there is no terminal for the password.
    """
    token = environ.get("PTJOB_AIRFLOW_TOKEN", "")
    password = environ.get("PTJOB_AIRFLOW_PASSWORD", "")
    if user and not token and not password:
        if not sys.stdin.isatty():
            nobody = "the password cannot be asked for without a terminal"
            raise Refused(f"--airflow-user: {nobody}; set $PTJOB_AIRFLOW_PASSWORD, or $PTJOB_AIRFLOW_TOKEN", EXIT_USAGE)
        password = click.prompt(f"Password of {user}", hide_input=True, err=True)
    try:
        return AirflowTasks(url, token=token, user=user or "", password=password)
    except InvalidSpec as error:
        raise Refused(str(error), EXIT_USAGE) from error


def show_live(place: Place, *, older_than: timedelta, output: str | None) -> None:
    """Print every job of an orchestrator that uses resources, for a person to decide."""
    now = datetime.now(UTC)
    found = [job for job in run(live_jobs(place.open(), place.namespace)) if now - job.created_at >= older_than]
    none = f"no live jobs older than {tables.duration(older_than)} {_where(place)}"
    tables.show_rows([job.to_dict() for job in found], partial(tables.live, found, now=now), output, none=none)


def show_orphans(
    place: Place, waiters: AirflowTasks, *, name: str, older_than: timedelta, delete: bool, output: str | None
) -> None:
    """Print the orphaned jobs, each stopped before if requested.

    Raises:
        Refused: the jobs' installation is unknown, or some jobs could not be checked or stopped; they are printed with
            the reason.
    """
    instance = run(_instance(waiters, name, delete=delete))
    found = run(_swept(place, waiters, instance=instance, older_than=older_than, delete=delete))
    if output:
        names = [finding.job.ref.name for finding in found if finding.why]
        emit_rows(names, [finding.to_dict() for finding in found], output)
    elif found:
        tables.show(tables.orphans(found, now=datetime.now(UTC)))
    else:
        say(f"no orphaned jobs of {instance} {_where(place)}", err=True)
    failed = [finding for finding in found if finding.error]
    if failed:
        raise Refused(f"{len(failed)} of {len(found)} jobs: {failed[0].error}", EXIT_TRY_AGAIN)


async def _instance(waiters: AirflowTasks, name: str, *, delete: bool) -> Instance:
    """Return the Airflow's installation; a name given for it must match.

    To delete jobs, an id that was created elsewhere must be given explicitly: a copied database contains it.
    """
    try:
        origins = await waiters.installation_ids()
    except PermissionDenied as error:
        if name:
            return Instance(name)
        raise Refused(
            f"whose jobs to look for is kept in a Variable: {error}; or say --instance", EXIT_USAGE
        ) from error
    found = instance_of(origins)
    if found is None and not name:
        never = "it has no id: no task of it has ever submitted a job, or [ptjob] instance names it"
        raise Refused(f"{never}; say --instance NAME then", EXIT_USAGE)
    if found is not None and name and not found.has(name):
        other = f"the Airflow at that address is {found} (its Variables {', '.join(origins)})"
        raise Refused(f"--instance: {name!r} is not allowed; {other}", EXIT_USAGE)
    if delete and not name and not any(names_host(origin, waiters.host) for origin in origins.values()):
        copy = f"its id {found} was made elsewhere: {'; '.join(sorted(set(origins.values())))}"
        raise Refused(f"{waiters.host} may be a copy: {copy}. If it is that Airflow: --instance {found}", EXIT_USAGE)
    return found or Instance(name)


async def _swept(
    place: Place, waiters: AirflowTasks, *, instance: Instance, older_than: timedelta, delete: bool
) -> list[Orphan]:
    sweeping = sweep(
        place.open(),
        waiters,
        namespace=place.namespace,
        instance=instance,
        grace=older_than,
        unfollowed_grace=place.orphan_grace,
        stop=delete,
    )
    return [finding async for finding in sweeping]


def _where(place: Place) -> str:
    return f"in namespace {place.namespace} of {place}"
