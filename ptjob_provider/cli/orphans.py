"""Implements `orphans`: finds running jobs for which no task of Airflow waits, and stops them on request."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from ptjob_provider.cli import tables
from ptjob_provider.cli.output import EXIT_TRY_AGAIN, EXIT_USAGE, Failure, emit_rows, run, say
from ptjob_provider.cli.parameters import pass_target, span, table_output_option, target_options
from ptjob_provider.core.errors import PermissionDenied
from ptjob_provider.core.identity import Instance
from ptjob_provider.core.installation_id import instance_of, names_host
from ptjob_provider.core.run.orphans import sweep

if TYPE_CHECKING:
    from datetime import timedelta

    from ptjob_provider.cli.airflow_api import AirflowTasks
    from ptjob_provider.cli.target import Target
    from ptjob_provider.core.run.orphans import Orphan


@click.command()
@click.option(
    "--airflow-url", envvar="PTJOB_AIRFLOW_URL", metavar="URL", required=True, help="Address of Airflow's API server."
)
@click.option(
    "--airflow-user",
    envvar="PTJOB_AIRFLOW_USER",
    metavar="NAME",
    help="User name; the password is read from $PTJOB_AIRFLOW_PASSWORD or from a prompt. A token in "
    "$PTJOB_AIRFLOW_TOKEN replaces both.",
)
@click.option("--instance", metavar="NAME", help="[ptjob] instance of that Airflow.  [default: the id it reports]")
@click.option(
    "--older-than", callback=span, default="10m", metavar="SPAN", show_default=True, help="Ignore younger jobs."
)
@click.option("--delete", is_flag=True, help="Delete the running ones; ended jobs and all claims stay.")
@table_output_option
@target_options
@pass_target
def orphans(
    target: Target,
    *,
    airflow_url: str,
    airflow_user: str | None,
    instance: str | None,
    older_than: timedelta,
    delete: bool,
    output: str | None,
) -> None:
    """List orphaned jobs: no task of Airflow waits for them.

    Only running jobs are listed.

    \b
    ptjob orphans --airflow-url https://airflow.example.com --delete
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli.airflow_api import airflow_tasks

    now = datetime.now(UTC)
    airflow = airflow_tasks(airflow_url, airflow_user, os.environ)
    owner = run(_instance(airflow, instance or target.instance, delete=delete))
    findings = run(_swept(target, airflow, instance=owner, older_than=older_than, delete=delete))
    _show(findings, output, none=f"no orphaned jobs of {owner} {target.where}", now=now)


def _show(findings: list[Orphan], output: str | None, *, none: str, now: datetime) -> None:
    """Print the orphaned jobs.

    Raises:
        Failure: some jobs could not be checked or stopped; they are printed with the reason.
    """
    if output:
        names = [finding.job.ref.name for finding in findings if finding.why]
        emit_rows(names, [finding.to_dict() for finding in findings], output)
    elif findings:
        tables.show(tables.orphans(findings, now=now))
    else:
        say(none, err=True)
    failed = [finding for finding in findings if finding.error]
    if failed:
        raise Failure(f"{len(failed)} of {len(findings)} jobs: {failed[0].error}", EXIT_TRY_AGAIN)


async def _instance(airflow: AirflowTasks, name: str, *, delete: bool) -> Instance:
    """Return the installation of this Airflow; a name from the command line must match its ids.

    If jobs are to be deleted, an id that was created at another address must be given explicitly: this Airflow's
    database may be a copy of another one's.

    Raises:
        Failure: the installation is unknown.
    """
    try:
        origins = await airflow.installation_ids()
    except PermissionDenied as error:
        if name:
            return Instance(name)
        why = f"whose jobs to look for is kept in a Variable: {error}; or say --instance"
        raise Failure(why, EXIT_USAGE) from error
    reported = instance_of(origins)
    if reported is None and not name:
        never = "it has no id: no task of it has ever submitted a job, or [ptjob] instance names it"
        raise Failure(f"{never}; say --instance NAME then", EXIT_USAGE)
    if reported is not None and name and not reported.has(name):
        other = f"the Airflow at that address is {reported} (its Variables {', '.join(origins)})"
        raise Failure(f"--instance: {name!r} is not allowed; {other}", EXIT_USAGE)
    if delete and not name and not any(names_host(origin, airflow.host) for origin in origins.values()):
        copy = f"its id {reported} was made elsewhere: {'; '.join(sorted(set(origins.values())))}"
        raise Failure(f"{airflow.host} may be a copy: {copy}. If it is that Airflow: --instance {reported}", EXIT_USAGE)
    return reported or Instance(name)


async def _swept(
    target: Target, airflow: AirflowTasks, *, instance: Instance, older_than: timedelta, delete: bool
) -> list[Orphan]:
    """Return the orphaned jobs; with `delete`, each has been stopped."""
    findings = sweep(
        target.open(),
        airflow,
        namespace=target.namespace,
        instance=instance,
        grace=older_than,
        unfollowed_grace=target.settings.orphan_grace(),
        stop=delete,
    )
    return [finding async for finding in findings]
