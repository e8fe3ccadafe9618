"""Implements `doctor`: checks whether jobs can run here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ptjob_provider.cli import tables
from ptjob_provider.cli.output import EXIT_FAILED, emit_rows, run, say
from ptjob_provider.cli.parameters import output_option, pass_target, target_options
from ptjob_provider.core.inspector import Check

if TYPE_CHECKING:
    from ptjob_provider.cli.target import Target


_LISTING = 300.0
"""Seconds for one listing of a source."""


@click.command()
@output_option("Output format; name prints what is missing.")
@click.option("--source", metavar="ADDRESS", help="Also list a source of data, as a DataArrivalTrigger would.")
@target_options
@pass_target
def doctor(target: Target, *, output: str | None, source: str | None) -> None:
    """Check whether jobs can run here, and say what to do.

    It changes nothing. The exit code is 1 if something is missing that every job needs.
    """
    checks = list(run(target.inspector().checks(target.namespace)))
    checks += [run(_source_check(source))] if source else []
    missing = [check.about for check in checks if check.is_good is False]
    if output:
        emit_rows(missing, [check.to_dict() for check in checks], output)
    else:
        say(f"jobs of namespace {target.namespace} on {target}:")
        tables.show(tables.checks(checks))
    if missing:
        raise SystemExit(EXIT_FAILED)


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
