"""Implements `list`, `get`, `events`, `delete`, `prune`, `suspend` and `resume` on the back-end's port."""

from __future__ import annotations

import signal
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ptjob_provider.cli import tables
from ptjob_provider.cli.output import EXIT_USAGE, Failure, cancel_on, emit, for_each, notice, run, say
from ptjob_provider.cli.parameters import (
    all_namespaces_option,
    names_argument,
    of_jobs,
    of_one_job,
    output_option,
    progress_options,
    span,
    table_output_option,
)
from ptjob_provider.core import history, kinds
from ptjob_provider.core.diagnosis import Diagnosis, in_brief
from ptjob_provider.core.errors import JobNotFound, PTJobError
from ptjob_provider.core.identity import JobRef, attempt_of
from ptjob_provider.core.kinds.queue import QUEUE_LABEL
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.spec.pods import label_map
from ptjob_provider.core.status import JobPhase, parse_instant
from ptjob_provider.core.tensorboard import url_of
from ptjob_provider.core.training_progress import Progress, of_trainer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from ptjob_provider.cli.progress import Seen
    from ptjob_provider.cli.target import Target
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.run.snapshot import Snapshot
    from ptjob_provider.core.training_progress import LinePattern

_LOCAL_EVENTS = "here, only fields without effect have events"
_AT_ONCE = 16
"""Maximum number of jobs whose pods are requested at the same time; an ended job takes one or two requests."""

DELETE_TIMEOUT = 60.0
"""Seconds; the processes of a local job end within a few seconds, even if they ignore signals."""


@click.command("list")
@click.option(
    "-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only jobs with this label; repeatable."
)
@click.option("--progress", "with_progress", is_flag=True, help="Also show STEP and ETA, from the running jobs' logs.")
@output_option("Output format; wide: the table with nodes (one more request per job).  [default: a table]", "wide")
@all_namespaces_option
@of_jobs
def list_(target: Target, labels: tuple[str, ...], output: str | None, *, with_progress: bool) -> None:
    """List the jobs of the namespace, oldest first.

    REASON is what a job waits for or what ended it, as recorded on the job; `ptjob get NAME` also inspects its pods.
    RAN is how long it has run: `<5m` is an upper limit, `-` means not at all. ETA is the time until STEP has its total.
    """
    more = {"with_nodes": output == "wide", "with_progress": with_progress and output != "name"}
    rows = run(_rows(target, _selector(labels), **more))
    table = partial(tables.jobs, rows, now=datetime.now(UTC), with_namespace=target.is_everywhere)
    tables.show_rows(rows, table, output if output != "wide" else None, none=f"no jobs {target.where}")


async def _rows(
    target: Target, selector: Mapping[str, str], *, with_nodes: bool, with_progress: bool
) -> list[dict[str, Any]]:
    import asyncio

    backend = target.open()
    jobs = await target.jobs(backend, selector)
    rows = [row_of(job) for job in jobs]
    if with_nodes:
        slots = asyncio.Semaphore(_AT_ONCE)
        nodes = await asyncio.gather(*(_nodes(backend, job, slots) for job in jobs))
        rows = [{**row, "nodes": names} for row, names in zip(rows, nodes, strict=True)]
    if with_progress:
        running = [job for job, row in zip(jobs, rows, strict=True) if row["phase"] == JobPhase.RUNNING]
        states = await _states(target, backend, running)
        rows = [{**row, "progress": states.get(row["uid"])} for row in rows]
    return rows


async def _states(target: Target, backend: Backend, jobs: Sequence[Manifest]) -> dict[str, Any]:
    """Return what the logs of jobs say, by uid; print how many could not be read, and why the first could not."""
    from ptjob_provider.cli.progress import of_jobs

    found = await of_jobs(target.inspector(), jobs, partial(_pods, backend))
    if unread := [each for each in found if isinstance(each, PTJobError)]:
        notice(f"{len(unread)} of {len(jobs)} logs could not be read: {unread[0]}")
    by_uid = {JobRef.of(job).uid: each for job, each in zip(jobs, found, strict=True)}
    return {uid: outgoing(each.to_dict()) for uid, each in by_uid.items() if isinstance(each, Progress)}


async def _nodes(backend: Backend, job: Manifest, slots: asyncio.Semaphore) -> list[str]:
    """Return the nodes of a job's pods, rank 0's first."""
    async with slots:
        pods = await _pods(backend, JobRef.of(job))
    replica_of = kinds.replica_of(job)
    placed = {replica_of(pod): (pod.get("spec") or {}).get("nodeName") for pod in pods}
    nodes = [placed.get(replica.name) for replica in kinds.replicas(job)]
    return list(dict.fromkeys(node for node in nodes if node))


async def _pods(backend: Backend, ref: JobRef) -> tuple[Manifest, ...]:
    """Return the job's current pods."""
    from ptjob_provider.core.run.snapshot import observed

    return tuple((await observed(backend, ref)).pods)


def row_of(job: Manifest) -> dict[str, Any]:
    """Return a job's row of the list."""
    from ptjob_provider.core.run.snapshot import owner_of

    record = history.stored_in(job)
    ref, status = JobRef.of(job), kinds.observed_status(job, record)
    ranks = {replica.name: replica.rank for replica in kinds.replicas(job)}
    # The observed time counts, unless it is before a suspension; otherwise the time that the job reports.
    running_at = record.first_running_at
    if running_at is None or (status.started_at is not None and running_at < status.started_at):
        running_at = kinds.kind_of(job).running_since(job)
    return {
        **ref.to_dict(),
        **status.to_dict(),
        "in_brief": in_brief(ref.name, record, status, Diagnosis.stored_in(job), ranks=ranks),
        "running_at": running_at.isoformat() if running_at else None,
        "attempt": attempt_of(job),
        "replicas": len(ranks),
        "owner": owner_of(job),
        "tensorboard_url": url_of(job) or None,
    }


def _selector(labels: tuple[str, ...]) -> dict[str, str]:
    for label in labels:
        key, equals, _ = label.partition("=")
        if not key or not equals:
            raise Failure(f"--label: {label!r} is not allowed; allowed: KEY=VALUE", EXIT_USAGE)
    return label_map("--label", dict(label.split("=", 1) for label in labels))


@click.command()
@click.option(
    "--outputs",
    is_flag=True,
    help="Inspect the outputs again; on a cluster this starts a pod.  [default: show the last report]",
)
@click.option("-e", "--events", "with_events", is_flag=True, help="Also show the events about the job and its pods.")
@progress_options("Do not read how far the training is from rank 0's log.")
@table_output_option
@of_one_job
def get(
    target: Target,
    name: str,
    *,
    outputs: bool,
    with_events: bool,
    progress: LinePattern | None,
    no_progress: bool,
    output: str | None,
) -> None:
    """Show one job: replicas, outputs, why it failed or waits.

    `waited` is the time until its first replica ran, `ran` the time since. ENDED WITH has the exit code of each run and
    the kubelet's reason. `progress` and the curves below are what the last lines of rank 0's log say.
    """
    more = {"events": run(_event_rows(target, name))} if with_events and output else {}
    inspect, reads_log = outputs or target.backend == "local", not no_progress and output != "name"
    snapshot, found, unread = run(_snapshot(target, name, progress, inspect=inspect, reads_log=reads_log))
    if snapshot.unverified:
        notice(snapshot.unverified)
    if output == "name":
        say(snapshot.submission.ref.name)
    elif output:
        if unread:
            notice(f"progress is not known: {unread}")
        values = {**snapshot.to_dict(), "progress": found.progress.to_dict() if found else None}
        emit({**outgoing(values, notice, bounded=False), **more}, output)
    else:
        _show(snapshot, found, unread)
        if with_events:
            _show_events(target, name, None)


def _show(snapshot: Snapshot, found: Seen | None, unread: str) -> None:
    progress = tables.progress(found.progress) if found else unread and f"not known: {unread}"
    tables.show(tables.job(snapshot, progress))
    tables.show(tables.replicas(snapshot))
    if snapshot.conditions:
        tables.show(tables.conditions(snapshot))
    if snapshot.used:
        tables.show(tables.peaks(snapshot.used))
    if found:
        from ptjob_provider.cli.plots import show

        show(found.curve)
    if snapshot.diagnosis and (details := snapshot.diagnosis.details(snapshot.submission.ref)):
        say("\n" + "\n".join(details))


async def _snapshot(
    target: Target, name: str, pattern: LinePattern | None, *, inspect: bool, reads_log: bool
) -> tuple[Snapshot, Seen | None, str]:
    """Return a job's current state, what its log says about the training, and why the log cannot be read."""
    from ptjob_provider.cli.progress import of_snapshot
    from ptjob_provider.core.run.snapshot import look

    cancel_on(signal.SIGTERM, signal.SIGHUP)  # a pod may inspect the outputs
    snapshot = await look(
        target.open(), target.namespace, name, kind=target.kind, preferred=target.settings.kind(), inspect=inspect
    )
    try:
        is_asked = reads_log or of_trainer(snapshot.job)  # what the program has reported to Trainer costs no request
        return snapshot, await of_snapshot(target.inspector(), snapshot, pattern) if is_asked else None, ""
    except PTJobError as error:
        return snapshot, None, str(error)


@click.command()
@table_output_option
@of_one_job
def events(target: Target, name: str, output: str | None) -> None:
    """Show the events of a job and its pods.

    The oldest comes first. A cluster keeps its events for an hour.
    """
    _show_events(target, name, output)


def _show_events(target: Target, name: str, output: str | None) -> None:
    rows = run(_event_rows(target, name))
    why = _LOCAL_EVENTS if target.backend == "local" else "a cluster keeps them for an hour"
    none = f"no events about {target.namespace}/{name}: {why}"
    tables.show_rows(rows, partial(tables.events, rows, now=datetime.now(UTC)), output, key="object", none=none)


async def _event_rows(target: Target, name: str) -> list[dict[str, Any]]:
    """Return the rows for the events of a job and its pods, oldest first."""
    backend = target.open()
    job = await target.find(backend, name)
    ref, kind = JobRef.of(job), kinds.kind_of(job)
    pods = [replica.name for replica in kinds.replicas(job)]
    if not kind.HAS_FIXED_POD_NAMES:
        current = [pod["metadata"]["name"] for pod in await _pods(backend, ref)]
        pods += dict.fromkeys([*current, *kind.reported(job).pods])
    return [event_row(event) for event in sorted(await target.inspector().events(ref, pods), key=_when)]


def event_row(event: Manifest) -> dict[str, Any]:
    """Return the row for one event."""
    about = event.get("involvedObject") or {}
    return {
        "at": _at(event),
        "type": event.get("type") or "Normal",
        "reason": event.get("reason") or "",
        "object": f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        "count": event.get("count") or 1,
        "message": (event.get("message") or "").strip(),
    }


def _at(event: Manifest) -> str:
    series = (event.get("series") or {}).get("lastObservedTime")
    when = series or event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return str(when or "")


def _when(event: Manifest) -> datetime:
    """Return the event's time in whole seconds, because only some reporters write fractions; none sorts first.

    The server lists events by their names, whose ends are their nanoseconds.
    """
    at = parse_instant(_at(event)) or datetime.min.replace(tzinfo=UTC)
    return at.replace(microsecond=0)


@click.command()
@names_argument
@click.option("--ignore-not-found", is_flag=True, help="Treat a job that does not exist as deleted.")
@of_jobs
def delete(target: Target, names: tuple[str, ...], *, ignore_not_found: bool) -> None:
    """Delete jobs and wait until they are gone.

    Files on claims stay.
    """
    for_each(names, lambda name: _delete(target, name, ignore_not_found=ignore_not_found))


async def _delete(target: Target, name: str, *, ignore_not_found: bool) -> None:
    backend = target.open()
    try:
        ref = JobRef.of(await target.find(backend, name))
    except JobNotFound:
        if ignore_not_found:
            return
        raise
    await _delete_job(backend, ref)


async def _delete_job(backend: Backend, ref: JobRef) -> None:
    from ptjob_provider.core.run.cleanup import stop_and_wait

    await stop_and_wait(backend, ref, timeout=DELETE_TIMEOUT)
    say(f"{ref} is deleted; its claims are as they were")


@click.command()
@click.option(
    "-s",
    "--since",
    callback=span,
    default="7d",
    show_default=True,
    metavar="SPAN",
    help="Minimum time since the job ended.",
)
@click.option("--dry-run", is_flag=True, help="List the jobs without deleting them.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@all_namespaces_option
@of_jobs
def prune(target: Target, *, since: timedelta, dry_run: bool, yes: bool) -> None:
    """Delete the jobs that ended a while ago.

    They are listed first, and on a terminal you are asked to confirm. Files on claims stay.

    \b
    ptjob prune --since 30d
    ptjob prune --since 0s --dry-run
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    ended = run(_ended(target, since=since))
    if not ended:
        say(f"no job {target.where} ended that long ago", err=True)
        return
    jobs = f"{len(ended)} job{'' if len(ended) == 1 else 's'}"
    if not dry_run and not yes and not sys.stdin.isatty():
        would = f"{jobs} {target.where} would be deleted, and there is no terminal to ask"
        raise Failure(f"--yes is missing: {would}; --dry-run lists them", EXIT_USAGE)
    if dry_run or not yes:
        for ref, finished_at in ended.items():
            say(f"{ref} would be deleted: it ended {finished_at.isoformat(sep=' ', timespec='seconds')}")
    if dry_run:
        return
    if not yes and not click.confirm(f"Delete {jobs} {target.where}?", err=True):
        raise Failure("nothing was deleted")
    backend = target.open()
    for_each(ended, lambda ref: _delete_job(backend, ref))


async def _ended(target: Target, *, since: timedelta) -> dict[JobRef, datetime]:
    """Return the end time of each job that ended at least this long ago, in the order of the list."""
    before = datetime.now(UTC) - since
    status_of = {JobRef.of(job): kinds.read_status(job) for job in await target.jobs(target.open(), {})}
    ended = {ref: status.finished_at for ref, status in status_of.items() if status.phase.is_terminal}
    return {ref: at for ref, at in ended.items() if at is not None and at <= before}


@click.command()
@names_argument
@of_jobs
def suspend(target: Target, names: tuple[str, ...]) -> None:
    """Suspend jobs: their pods are deleted until they are resumed.

    A resumed training starts from its checkpoint, if it keeps one, else from the beginning.
    """
    for_each(names, lambda name: _suspend(target, name, suspend=True))


@click.command()
@names_argument
@of_jobs
def resume(target: Target, names: tuple[str, ...]) -> None:
    """Resume suspended jobs."""
    for_each(names, lambda name: _suspend(target, name, suspend=False))


async def _suspend(target: Target, name: str, *, suspend: bool) -> None:
    """Suspend or resume one job; if a queue holds a resumed job, name the queue that decides."""
    backend = target.open()
    job = await target.find(backend, name)
    ref, phase = JobRef.of(job), kinds.read_status(job).phase
    if phase.is_terminal:
        raise Failure(f"{ref} has ended ({phase.value}): there is nothing to {'suspend' if suspend else 'resume'}")
    queue = (job["metadata"].get("labels") or {}).get(QUEUE_LABEL) if target.backend != "local" else None
    if queue and suspend:
        raise Failure(
            f"{ref} is in the queue {queue}, and Kueue resumes what it has admitted: set spec.active of its Workload "
            "to false, or delete the job"
        )
    await backend.patch(ref, kinds.named(ref.kind).suspended(suspend=suspend))
    if suspend:
        say(f"{ref} is suspended; go on with: ptjob resume {ref.name}")
    elif queue:
        say(f"{ref} continues when Kueue admits it to the queue {queue}: ptjob get {ref.name}")
    else:
        say(f"{ref} goes on")
