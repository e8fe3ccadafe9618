"""Implements `doctor`: checks whether jobs can run here."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import click

from ptjob_provider.cli import tables
from ptjob_provider.cli.output import EXIT_FAILED, emit_rows, run, say
from ptjob_provider.cli.parameters import airflow_options, output_option, pass_target, target_options
from ptjob_provider.cli.target import worker_origin
from ptjob_provider.core.errors import ClusterError
from ptjob_provider.core.inspector import Check
from ptjob_provider.core.installation_id import NO_ADDRESS, instance_of, origin_mismatch

if TYPE_CHECKING:
    from ptjob_provider.cli.airflow_api import AirflowTasks
    from ptjob_provider.cli.target import Target


_LISTING = 300.0
"""Seconds for one listing of a source."""


@click.command()
@output_option("Output format; name prints what is missing.")
@click.option("--source", metavar="ADDRESS", help="Also list a source of data, as a DataArrivalTrigger would.")
@airflow_options
@target_options
@pass_target
def doctor(
    target: Target, *, output: str | None, source: str | None, airflow_url: str | None, airflow_user: str | None
) -> None:
    """Check whether jobs can run here, and say what to do.

    With --airflow-url, also check that the id which distinguishes that Airflow's jobs from others is its own: a copied
    database has the id of the original. Run it where Airflow is configured, such as on a worker. It changes nothing.
    The exit code is 1 if something is missing that every job needs.
    """
    from ptjob_provider.cli.airflow_api import airflow_tasks

    airflow = airflow_tasks(airflow_url, airflow_user, os.environ) if airflow_url else None
    checks = [*run(_checks(target, airflow)), *([run(_source_check(source))] if source else [])]
    missing = [check.about for check in checks if check.is_good is False]
    if output:
        emit_rows(missing, [check.to_dict() for check in checks], output)
    else:
        say(f"jobs of namespace {target.namespace} on {target}:")
        tables.show(tables.checks(checks))
    if missing:
        raise SystemExit(EXIT_FAILED)


async def _checks(target: Target, airflow: AirflowTasks | None) -> list[Check]:
    checks = list(await target.inspector().checks(target.namespace))
    if airflow is not None:
        checks.append(await _id_check(airflow, target.instance, worker_origin(os.environ)))
        checks.append(await _version_check(airflow))
    return checks


async def _source_check(address: str) -> Check:
    """List a source with the usual rules, and say which arguments read one that has no batch by them."""
    from ptjob_provider.retraining.batches import BatchRules
    from ptjob_provider.retraining.sources import Source, Store, Threads

    store = Store(Source(address=address), BatchRules())
    try:
        listing = await Threads("ptjob-source").call(store.look, within=_LISTING)
    except Exception as error:  # noqa: BLE001 - every store has its own
        return Check(about="source", is_good=None, result=f"{address}: {type(error).__name__}: {error}")
    complete = sum(batch.is_marked for batch in listing.batches)
    result = f"{address}: {complete} complete of {len(listing.batches)} batches, {listing.files} files"
    return Check(about="source", is_good=bool(complete) or None, result=result, advice=listing.advice)


async def _version_check(airflow: AirflowTasks) -> Check:
    """Report Airflow's version, and where it is documented what differs with it; with 3.3, everything works."""
    about = "the Airflow's version"
    try:
        text = await airflow.version()
    except ClusterError as error:
        return Check(about=about, is_good=None, result=str(error))
    advice = "" if re.match(r"3\.3\b", text) else "some things differ from 3.3: docs/reference/airflow-versions.md"
    return Check(about=about, is_good=True, result=text, advice=advice)


async def _id_check(airflow: AirflowTasks, name: str, here: str) -> Check:
    """Check whether this Airflow's jobs can be distinguished from those of another one.

    Args:
        airflow: client of that Airflow.
        name: `[ptjob] instance` of the configuration on this machine; "" if not set.
        here: what an id that is created on this machine would record as its origin.
    """
    about = "the Airflow's id"
    if name:
        return Check(about=about, is_good=True, result=f"[ptjob] instance = {name}")
    try:
        origins = await airflow.installation_ids()
    except ClusterError as error:
        return Check(about=about, is_good=None, result=str(error))
    if not origins:
        return Check(about=about, is_good=None, result="none yet; the first task that submits a job makes it")
    ids = f"{instance_of(origins)}, made at: {', '.join(sorted(set(origins.values())))}"
    if here == NO_ADDRESS and set(origins.values()) != {NO_ADDRESS}:
        return Check(about=about, is_good=None, result=ids, advice="look from where Airflow is configured, a worker")
    why = origin_mismatch(origins, here)
    return Check(about=about, is_good=not why, result=ids, advice=why)
