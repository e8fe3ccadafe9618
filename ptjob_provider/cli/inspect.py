"""Implements `top` and `doctor`: inspects the place where jobs run, and prints the result."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ptjob_provider.cli import tables
from ptjob_provider.cli.commands import row_of
from ptjob_provider.cli.output import EXIT_FAILED, emit_rows, notice, run
from ptjob_provider.cli.place import here
from ptjob_provider.cli.printable import say
from ptjob_provider.core import history, kinds
from ptjob_provider.core.errors import ClusterError
from ptjob_provider.core.history import peak_usage
from ptjob_provider.core.history.peak_usage import PeakUsage
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.inspector import Check
from ptjob_provider.core.installation_id import NO_ADDRESS, instance_of, origin_mismatch
from ptjob_provider.core.run.lookup import list_jobs as find_jobs
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.cli.airflow_api import AirflowTasks
    from ptjob_provider.cli.place import Place
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import NodeUse, ReplicaUse, Usage


def top_nodes(place: Place, *, output: str | None) -> None:
    """Print each node, and the allocated share of all GPUs."""
    found = run(place.site().nodes())
    if output:
        emit_rows([node.name for node in found], [node.to_dict() for node in found], output)
        return
    tables.show(tables.nodes(found))
    say(f"Allocated/Total GPUs In Cluster:\n{_share(found)}")


def top_jobs(place: Place, *, output: str | None) -> None:
    """Print the requested and allocated GPUs of each job."""
    rows = run(_jobs_in_use(place))
    if output:
        emit_rows([row["name"] for row in rows], rows, output)
        return
    if not rows:
        say(f"no jobs {place.where}", err=True)
        return
    tables.show(tables.jobs_in_use(rows, now=datetime.now(UTC)))
    say(f"Total Allocated GPUs of Training Job:\n{sum(row['gpus_allocated'] for row in rows)}")
    say(f"Total Requested GPUs of Training Job:\n{sum(row['gpus'] for row in rows)}")


def top_job(place: Place, name: str, *, output: str | None) -> None:
    """Print each replica's current usage and its measured peaks."""
    usage, most, job = run(_usage(place, name))
    if usage.unknown:
        notice(usage.unknown)
    if output:
        uses = [_use(replica, most) for replica in usage.replicas]
        emit_rows([use["replica"] for use in uses], uses, output)
    else:
        record = kinds.observe(history.stored_in(job), job, (), (), now=datetime.now(UTC))
        tables.show(tables.replicas_in_use(usage.replicas, most, record, kinds.read_status(job)))


def doctor(place: Place, airflow: AirflowTasks | None, *, output: str | None) -> None:
    """Print all checks; the process fails if a prerequisite of every job is missing."""
    found = run(_checks(place, airflow))
    if output:
        missing = [check.about for check in found if check.is_good is False]
        emit_rows(missing, [check.to_dict() for check in found], output)
    else:
        say(f"jobs of namespace {place.namespace} on {place}:")
        tables.show(tables.checks(found))
    if any(check.is_good is False for check in found):
        raise SystemExit(EXIT_FAILED)


async def _checks(place: Place, airflow: AirflowTasks | None) -> list[Check]:
    found = list(await place.site().checks(place.namespace))
    if airflow is not None:
        found.append(await _id_check(airflow, place.instance, here(os.environ)))
    return found


async def _id_check(airflow: AirflowTasks, name: str, here: str) -> Check:
    """Check whether an Airflow's jobs can be distinguished from another one's, as far as this is visible from here."""
    about = "the Airflow's id"
    if name:
        return Check(about=about, is_good=True, said=f"[ptjob] instance = {name}")
    try:
        origins = await airflow.installation_ids()
    except ClusterError as error:
        return Check(about=about, is_good=None, said=str(error))
    if not origins:
        return Check(about=about, is_good=None, said="none yet; the first task that submits a job makes it")
    said = f"{instance_of(origins)}, made at: {', '.join(sorted(set(origins.values())))}"
    if here == NO_ADDRESS and set(origins.values()) != {NO_ADDRESS}:
        return Check(about=about, is_good=None, said=said, advice="look from where Airflow is configured, a worker")
    why = origin_mismatch(origins, here)
    return Check(about=about, is_good=not why, said=said, advice=why)


async def _jobs_in_use(place: Place) -> list[dict[str, Any]]:
    jobs = await find_jobs(place.open(), place.looked_in, {}, kind=place.kind)
    return list(await asyncio.gather(*(_in_use(place, job) for job in jobs)))


async def _in_use(place: Place, job: Manifest) -> dict[str, Any]:
    """Return a job's row; only a job with running pods needs a request."""
    row = row_of(job)
    told = {key: row[key] for key in ("name", "namespace", "phase", "created_at")}
    gpus = sum(replica.gpus for replica in kinds.replicas(job))
    if kinds.read_status(job).phase is not JobPhase.RUNNING:
        return {**told, "gpus": gpus, "gpus_allocated": 0, "node": ""}
    replicas = (await place.site().usage(job)).replicas
    allocated = sum(replica.gpus for replica in replicas)
    return {**told, "gpus": gpus, "gpus_allocated": allocated, "node": replicas[0].node if replicas else ""}


async def _usage(place: Place, name: str) -> tuple[Usage, Mapping[str, PeakUsage], Manifest]:
    backend = place.open()
    job = await place.find(backend, name)
    now = await place.site().usage(job)
    before = peak_usage.together(peak_usage.stored_in(job), await backend.usage(JobRef.of(job)))
    seen = {each.replica: PeakUsage().with_sample(each.to_dict()) for each in now.replicas}
    return now, peak_usage.together(before, seen), job


def _use(replica: ReplicaUse, most: Mapping[str, PeakUsage]) -> dict[str, Any]:
    peak = most[replica.replica]
    return {**replica.to_dict(), "peak_cpu": peak.peak_cpu, "peak_memory": peak.peak_memory}


def _share(nodes: Sequence[NodeUse]) -> str:
    total, taken = sum(node.gpus for node in nodes), sum(node.gpus_taken for node in nodes)
    return f"{taken}/{total} ({100 * taken // total if total else 0}%)"
