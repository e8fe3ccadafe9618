"""Implement `list`, `get`, `delete`, `suspend`, `resume` and `events` on the back-end's port."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ptjob_provider.cli import tables
from ptjob_provider.cli.output import EXIT_USAGE, Refused, emit, notice, run
from ptjob_provider.cli.printable import say
from ptjob_provider.core import history, kinds
from ptjob_provider.core.diagnosis import Diagnosis, in_brief
from ptjob_provider.core.errors import InvalidSpec, JobNotFound, PermissionDenied
from ptjob_provider.core.identity import JobRef, Manifest, attempt_of
from ptjob_provider.core.kinds.queue import QUEUE_LABEL
from ptjob_provider.core.logs import nanoseconds
from ptjob_provider.core.run.cleanup import stop_and_wait
from ptjob_provider.core.run.lookup import list_jobs as find_jobs
from ptjob_provider.core.run.snapshot import look, owner_of
from ptjob_provider.core.spec.pods import label_map
from ptjob_provider.core.status import parse_instant
from ptjob_provider.core.tensorboard import url_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from ptjob_provider.cli.place import Place
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.run.snapshot import Snapshot

_AT_ONCE = 16
"""Jobs whose pods are requested at the same time: each that has ended takes a request or two."""

DELETE_TIMEOUT = 60.0
"""Seconds; a local job's processes are gone within a few, whatever they do with signals."""


def list_jobs(place: Place, *, labels: tuple[str, ...], output: str | None) -> None:
    """Print the namespace's jobs that have all the labels."""
    selector = _selector(labels)
    rows = run(_rows(place, selector, with_nodes=output == "wide"))
    table = partial(tables.jobs, rows, now=datetime.now(UTC), with_namespace=place.is_everywhere)
    tables.show_rows(rows, table, output if output != "wide" else None, none=f"no jobs {place.where}")


def get(place: Place, name: str, *, outputs: bool, output: str | None, more: Mapping[str, Any]) -> None:
    """Print one job; its outputs are inspected if that costs nothing or is requested.

    For programs, `more` is added to the job.
    """
    inspect = outputs or place.backend == "local"
    snapshot = run(_seen(place, name, inspect=inspect))
    if snapshot.unverified:
        notice(snapshot.unverified)
    if output == "name":
        say(snapshot.submission.ref.name)
    elif output:
        emit({**snapshot.to_dict(), **more}, output)
    else:
        tables.show(tables.job(snapshot))
        tables.show(tables.replicas(snapshot))
        if snapshot.conditions:
            tables.show(tables.conditions(snapshot))
        if snapshot.used:
            tables.show(tables.peaks(snapshot.used))
        if snapshot.diagnosis and (details := snapshot.diagnosis.details(snapshot.submission.ref)):
            say("\n" + "\n".join(details))


def delete(place: Place, name: str, *, ignore_not_found: bool) -> None:
    """Delete one job, and report it once all its pods are gone."""
    run(_delete(place, name, ignore_not_found=ignore_not_found))


def prune(place: Place, *, since: timedelta, dry_run: bool, yes: bool) -> None:
    """Delete the listed jobs that ended at least this long ago, but none that ends meanwhile.

    Raises:
        Refused: there is no terminal for the question, or the answer was no; nothing was deleted.
    """
    ended = run(_ended(place, since=since))
    if not ended:
        say(f"no job {place.where} ended that long ago", err=True)
        return
    if not dry_run and not yes and not sys.stdin.isatty():
        would = f"{_jobs(ended)} {place.where} would be deleted, and there is no terminal to ask"
        raise Refused(f"--yes is missing: {would}; --dry-run lists them", EXIT_USAGE)
    if dry_run or not yes:
        for ref, finished_at in ended:
            say(f"{ref} would be deleted: it ended {finished_at.isoformat(sep=' ', timespec='seconds')}")
    if dry_run:
        return
    if not yes and not click.confirm(f"Delete {_jobs(ended)} {place.where}?", err=True):
        raise Refused("nothing was deleted")
    run(_deleted(place, ended))


def suspend(place: Place, name: str, *, suspend: bool) -> None:
    """Suspend or resume one job; safe to repeat.

    Raises:
        Refused: the job has ended.
    """
    run(_suspend(place, name, suspend=suspend))


def row_of(job: Manifest) -> dict[str, Any]:
    """Return a job's row of the list."""
    record = history.stored_in(job)
    ref, status = JobRef.of(job), kinds.observed_status(job, record)
    ranks = {replica.name: replica.rank for replica in kinds.replicas(job)}
    return {
        **ref.to_dict(),
        **status.to_dict(),
        "in_brief": in_brief(ref.name, record, status, Diagnosis.stored_in(job), ranks=ranks),
        "running_at": _text(_running_at(job, record.first_running_at, status.started_at)),
        "attempt": attempt_of(job),
        "replicas": len(ranks),
        "owner": owner_of(job),
        "tensorboard_url": url_of(job) or None,
    }


def _running_at(job: Manifest, seen: datetime | None, started: datetime | None) -> datetime | None:
    """Return when the job began to run: as observed, unless that was before a suspension, else as it reports."""
    is_of_this_run = seen is not None and (started is None or seen >= started)
    return seen if is_of_this_run else kinds.kind_of(job).running_since(job)


def _text(instant: datetime | None) -> str | None:
    return instant.isoformat() if instant else None


async def _seen(place: Place, name: str, *, inspect: bool) -> Snapshot:
    """Return a job's current state; for Arena's jobs, with the address of their TensorBoard."""
    snapshot = await look(
        place.open(), place.namespace, name, kind=place.kind, preferred=place.preferred_kind, inspect=inspect
    )
    if "arena" not in snapshot.owner or snapshot.submission.tensorboard_url:
        return snapshot
    url = await place.site().tensorboard_url(snapshot.submission.ref)
    return replace(snapshot, submission=replace(snapshot.submission, tensorboard_url=url))


async def _rows(place: Place, selector: Mapping[str, str], *, with_nodes: bool) -> list[dict[str, Any]]:
    backend = place.open()
    jobs = await find_jobs(backend, place.looked_in, selector, kind=place.kind)
    if not with_nodes:
        return [row_of(job) for job in jobs]
    turns = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(*(_nodes(backend, job, turns) for job in jobs))
    if refused := next((each for each in found if isinstance(each, PermissionDenied)), None):
        notice(f"not all nodes are known: {refused}")
    known = ([] if isinstance(each, PermissionDenied) else each for each in found)
    return [{**row_of(job), "nodes": nodes} for job, nodes in zip(jobs, known, strict=True)]


async def _nodes(backend: Backend, job: Manifest, turns: asyncio.Semaphore) -> list[str] | PermissionDenied:
    """Return the nodes of a job's pods, rank 0's first, or why they may not be read."""
    try:
        async with turns, aclosing(backend.watch(JobRef.of(job))) as watch:
            pods = (await anext(watch)).pods
    except PermissionDenied as error:
        return error
    replica_of = kinds.replica_of(job)
    placed = {replica_of(pod): (pod.get("spec") or {}).get("nodeName") for pod in pods}
    nodes = [placed.get(replica.name) for replica in kinds.replicas(job)]
    return list(dict.fromkeys(node for node in nodes if node))


async def _delete(place: Place, name: str, *, ignore_not_found: bool) -> None:
    backend = place.open()
    try:
        ref = JobRef.of(await place.find(backend, name))
    except JobNotFound:
        if ignore_not_found:
            return
        raise
    await stop_and_wait(backend, ref, timeout=DELETE_TIMEOUT)
    say(f"{ref} is deleted; its claims are as they were")


async def _ended(place: Place, *, since: timedelta) -> list[tuple[JobRef, datetime]]:
    """Return the jobs that ended at least this long ago, and when, in the order of the list."""
    before = datetime.now(UTC) - since
    found = []
    for job in await find_jobs(place.open(), place.looked_in, {}, kind=place.kind):
        status = kinds.read_status(job)
        if status.phase.is_terminal and status.finished_at is not None and status.finished_at <= before:
            found.append((JobRef.of(job), status.finished_at))
    return found


async def _deleted(place: Place, ended: Sequence[tuple[JobRef, datetime]]) -> None:
    backend = place.open()
    for ref, _ in ended:
        await stop_and_wait(backend, ref, timeout=DELETE_TIMEOUT)
        say(f"{ref} is deleted; its claims are as they were")


def _jobs(ended: Sequence[object]) -> str:
    return f"{len(ended)} job{'' if len(ended) == 1 else 's'}"


async def _suspend(place: Place, name: str, *, suspend: bool) -> None:
    backend = place.open()
    job = await place.find(backend, name)
    ref, phase = JobRef.of(job), kinds.read_status(job).phase
    if phase.is_terminal:
        raise Refused(f"{ref} has ended ({phase.value}): there is nothing to {'suspend' if suspend else 'resume'}")
    await backend.patch(ref, kinds.named(ref.kind).suspended(suspend=suspend))
    say(_said_of(job, place, suspend=suspend))


def _said_of(job: Manifest, place: Place, *, suspend: bool) -> str:
    """Return the confirmation; if a queue holds the job, with the queue that decides."""
    ref, queue = JobRef.of(job), (job["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    if suspend:
        return f"{ref} is suspended; go on with: ptjob resume {ref.name}"
    if queue and place.backend != "local":
        return f"{ref} goes on when its queue {queue} has room, which Kueue decides: ptjob get {ref.name}"
    return f"{ref} goes on"


def _selector(labels: tuple[str, ...]) -> dict[str, str]:
    try:
        return label_map("--label", dict(_pair(label) for label in labels))
    except InvalidSpec as error:
        raise Refused(str(error), EXIT_USAGE) from error


def _pair(label: str) -> tuple[str, str]:
    key, equals, value = label.partition("=")
    if not key or not equals:
        raise Refused(f"--label: {label!r} is not allowed; allowed: KEY=VALUE", EXIT_USAGE)
    return key, value


_MADE_AT = re.compile(r"\.([0-9a-f]{16})$")


def events(place: Place, name: str, *, output: str | None) -> None:
    """Print the events of a job and its pods, oldest first."""
    rows = event_rows(place, name)
    why = "all of its fields apply here" if place.backend == "local" else "a cluster keeps them for an hour"
    none = f"no events about {place.namespace}/{name}: {why}"
    tables.show_rows(rows, partial(tables.events, rows, now=datetime.now(UTC)), output, key="object", none=none)


def event_rows(place: Place, name: str) -> list[dict[str, Any]]:
    """Return the rows for the events of a job and its pods, oldest first."""
    return [event_row(event) for event in run(_events(place, name))]


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


async def _events(place: Place, name: str) -> list[Manifest]:
    backend = place.open()
    job = await place.find(backend, name)
    ref, pods = JobRef.of(job), [replica.name for replica in kinds.replicas(job)]
    if not kinds.kind_of(job).HAS_FIXED_POD_NAMES:
        pods += dict.fromkeys([*await _pods_there(backend, ref), *kinds.kind_of(job).reported(job).pods])
    return sorted(await place.site().events(ref, pods), key=_order)


async def _pods_there(backend: Backend, ref: JobRef) -> list[str]:
    """Return the names of the job's current pods."""
    async with aclosing(backend.watch(ref)) as watch:
        seen = await anext(watch)
    return [pod["metadata"]["name"] for pod in seen.pods]


def _at(event: Manifest) -> str:
    series = (event.get("series") or {}).get("lastObservedTime")
    when = series or event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return str(when or "")


def _order(event: Manifest) -> tuple[datetime, int]:
    """Return the event's second, and its nanoseconds since 1970 within it, for sorting. No time sorts first.

    Only some reporters write fractions of a second; client-go ends the name of every event with the nanoseconds of its
    first occurrence, in hexadecimal digits.
    """
    at = parse_instant(_at(event)) or datetime.min.replace(tzinfo=UTC)
    made = _MADE_AT.search(str(event["metadata"].get("name") or ""))
    exact = int(made[1], 16) if made else nanoseconds(at.isoformat())
    return at.replace(microsecond=0), exact
