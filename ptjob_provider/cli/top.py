"""Implements `top node` and `top job`: shows what nodes and jobs have and use."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ptjob_provider.cli import tables
from ptjob_provider.cli.completion import job_names
from ptjob_provider.cli.jobs import row_of
from ptjob_provider.cli.output import notice, run, say
from ptjob_provider.cli.parameters import (
    all_namespaces_option,
    of_jobs,
    pass_target,
    table_output_option,
    target_options,
)
from ptjob_provider.core import kinds
from ptjob_provider.core.history import peak_usage
from ptjob_provider.core.history.peak_usage import PeakUsage
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.cli.target import Target
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import Usage


@click.group()
def top() -> None:
    """Show what nodes and jobs have and use."""


@top.command("node")
@table_output_option
@target_options
@pass_target
def node(target: Target, output: str | None) -> None:
    """Show each node's GPUs, CPU and memory, and what pods have taken of them.

    Needs the permissions `nodes list` and `pods list` in the whole cluster: deploy/components/cluster-view.
    """
    nodes = run(target.inspector().nodes())
    tables.show_rows([each.to_dict() for each in nodes], partial(tables.nodes, nodes), output)
    if not output:
        total, taken = sum(each.gpus for each in nodes), sum(each.gpus_taken for each in nodes)
        percent = 100 * taken // total if total else 0
        say(f"Allocated/Total GPUs In Cluster:\n{taken}/{total} ({percent}%)")


@top.command("job")
@click.argument("name", required=False, shell_complete=job_names)
@table_output_option
@all_namespaces_option
@of_jobs
def job(target: Target, name: str | None, output: str | None) -> None:
    """Show the GPUs of all jobs, or what each replica of one job uses now."""
    now = datetime.now(UTC)
    if name is None:
        rows = run(_jobs_in_use(target))
        tables.show_rows(rows, partial(tables.jobs_in_use, rows, now=now), output, none=f"no jobs {target.where}")
        if rows and not output:
            say(f"Total Allocated GPUs of Training Job:\n{sum(row['gpus_allocated'] for row in rows)}")
            say(f"Total Requested GPUs of Training Job:\n{sum(row['gpus'] for row in rows)}")
        return
    usage, peaks = run(_usage(target, name))
    if usage.unknown:
        notice(usage.unknown)
    rows = [
        {**each.to_dict(), "peak_cpu": peaks[each.replica].peak_cpu, "peak_memory": peaks[each.replica].peak_memory}
        for each in usage.replicas
    ]
    tables.show_rows(rows, partial(tables.replicas_in_use, usage.replicas, peaks), output, key="replica")


async def _jobs_in_use(target: Target) -> list[dict[str, Any]]:
    import asyncio

    jobs = await target.jobs(target.open(), {})
    return list(await asyncio.gather(*(_in_use(target, each) for each in jobs)))


async def _in_use(target: Target, job: Manifest) -> dict[str, Any]:
    """Return a job's row; only a job with running pods needs a request."""
    row = row_of(job)
    is_running = row["phase"] == JobPhase.RUNNING
    replicas = (await target.inspector().usage(job)).replicas if is_running else ()
    return {
        **{key: row[key] for key in ("name", "namespace", "phase", "created_at")},
        "gpus": sum(replica.gpus for replica in kinds.replicas(job)),
        "gpus_allocated": sum(replica.gpus for replica in replicas),
        "node": replicas[0].node if replicas else "",
    }


async def _usage(target: Target, name: str) -> tuple[Usage, Mapping[str, PeakUsage]]:
    """Return the current usage of each replica, and its measured peaks."""
    backend = target.open()
    job = await target.find(backend, name)
    usage = await target.inspector().usage(job)
    recorded = peak_usage.together(peak_usage.stored_in(job), await backend.usage(JobRef.of(job)))
    current = {each.replica: PeakUsage().with_sample(each.to_dict()) for each in usage.replicas}
    return usage, peak_usage.together(recorded, current)
