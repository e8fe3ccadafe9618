"""What the commands of `ptjob` do: ask the back-end through its port, and print."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
import yaml

from ptjob_provider.cli import tables
from ptjob_provider.core import kinds
from ptjob_provider.core.errors import InvalidSpec, JobNotFound, PTJobError
from ptjob_provider.core.identity import JobRef, Manifest, attempt_of
from ptjob_provider.core.lookup import find_job
from ptjob_provider.core.lookup import list_jobs as find_jobs
from ptjob_provider.core.snapshot import look, owner_of
from ptjob_provider.core.stopping import stop_and_wait

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ptjob_provider.cli.place import Place
    from ptjob_provider.core.logs import LogLine

T = TypeVar("T")

EXIT_USAGE = click.UsageError.exit_code
EXIT_NOT_FOUND = 3
EXIT_TRY_AGAIN = 75
DELETE_TIMEOUT = 60.0
"""Seconds; a local job's processes are gone within a few, whatever they do about signals."""


class Refused(click.ClickException):
    """A failure with a text for people and an exit code for programs."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.__dict__["exit_code"] = code


def list_jobs(place: Place, *, labels: tuple[str, ...], output: str | None, kind: str | None = None) -> None:
    """Print the jobs of the namespace that carry all the labels."""
    selector = dict(_pair(label) for label in labels)
    rows = [row_of(job) for job in run(find_jobs(place.open(), place.namespace, selector, kind=kind))]
    if output == "name":
        for row in rows:
            click.echo(row["name"])
    elif output:
        emit(rows, output)
    elif rows:
        tables.show(tables.jobs(rows, now=datetime.now(UTC)))
    else:
        click.echo(f"no jobs in namespace {place.namespace} of {place}", err=True)


def get(place: Place, name: str, *, outputs: bool, output: str | None, kind: str | None = None) -> None:
    """Print one job; its outputs are looked at where that costs nothing, or if they are asked for."""
    inspect = outputs or place.backend == "local"
    snapshot = run(look(place.open(), place.namespace, name, inspect=inspect, kind=kind))
    if snapshot.unverified:
        click.echo(f"── {snapshot.unverified}", err=True)
    if output == "name":
        click.echo(snapshot.submission.ref.name)
    elif output:
        emit(snapshot.to_dict(), output)
    else:
        tables.show(tables.job(snapshot))
        tables.show(tables.replicas(snapshot))
        if snapshot.diagnosis:
            click.echo(f"\n{snapshot.diagnosis.report(snapshot.submission.ref)}")


def logs(
    place: Place,
    name: str,
    *,
    follow: bool,
    tail: int | None,
    replica: str | None,
    timestamps: bool,
    kind: str | None = None,
) -> None:
    """Print one replica's log."""
    run(_logs(place, name, follow=follow, tail=tail, wanted=replica, timestamps=timestamps, kind=kind))


def delete(place: Place, name: str, *, ignore_not_found: bool, kind: str | None = None) -> None:
    """Delete one job and say so once nothing of it runs."""
    run(_delete(place, name, ignore_not_found=ignore_not_found, kind=kind))


def row_of(job: Manifest) -> dict[str, Any]:
    """Say of one job what a list says."""
    status, replicas = kinds.read_status(job).to_dict(), len(kinds.replicas(job))
    return {
        **JobRef.of(job).to_dict(),
        **status,
        "attempt": attempt_of(job),
        "replicas": replicas,
        "owner": owner_of(job),
    }


def find_replica(job: Manifest, wanted: str | None) -> str:
    """Return the pod that `-i` means: a pod's name, the end of one, or a rank; rank 0 without it.

    Raises:
        Refused: the job has no such replica; the text names those it has.
    """
    replicas = kinds.replicas(job)
    if wanted is None:
        return replicas[0].name
    for replica in replicas:
        if wanted in {replica.name, f"{replica.role}-{replica.index}", str(replica.rank)}:
            return replica.name
    names = ", ".join(f"{replica.rank} = {replica.name}" for replica in replicas)
    raise Refused(f"--replica: {wanted!r} is not a replica of this job; allowed: {names}", EXIT_USAGE)


def emit(value: object, output: str) -> None:
    """Print for programs."""
    if output == "json":
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do the work, and turn the core's errors into texts and exit codes."""
    try:
        return asyncio.run(work)
    except InvalidSpec as error:
        raise Refused(str(error), EXIT_USAGE) from error
    except JobNotFound as error:
        raise Refused(str(error), EXIT_NOT_FOUND) from error
    except PTJobError as error:
        raise Refused(str(error), EXIT_TRY_AGAIN if error.retryable else 1) from error


async def _logs(
    place: Place,
    name: str,
    *,
    follow: bool,
    tail: int | None,
    wanted: str | None,
    timestamps: bool,
    kind: str | None,
) -> None:
    backend = place.open()
    job = await find_job(backend, place.namespace, name, kind=kind)
    ref, replica, cursor = JobRef.of(job), find_replica(job, wanted), None
    if tail is not None:
        # At least one line is kept, and not printed for `-t 0`: following goes on after it.
        last = deque([line async for line in backend.logs(ref, replica, follow=False)], maxlen=max(tail, 1))
        for line in last if tail else ():
            _print_line(line, timestamps=timestamps)
        cursor = last[-1].cursor if last else None
    if tail is None or follow:
        async for line in backend.logs(ref, replica, since=cursor, follow=follow):
            _print_line(line, timestamps=timestamps)


def _print_line(line: LogLine, *, timestamps: bool) -> None:
    if line.notice:
        click.echo(f"── {line.text}", err=True)
        return
    click.echo(f"{line.timestamp} {line.text}" if timestamps else line.text, nl=not line.continues)


async def _delete(place: Place, name: str, *, ignore_not_found: bool, kind: str | None) -> None:
    backend = place.open()
    try:
        ref = JobRef.of(await find_job(backend, place.namespace, name, kind=kind))
    except JobNotFound:
        if ignore_not_found:
            return
        raise
    await stop_and_wait(backend, ref, timeout=DELETE_TIMEOUT)
    click.echo(f"{ref} is deleted; its claims are as they were")


def _pair(label: str) -> tuple[str, str]:
    key, equals, value = label.partition("=")
    if not key or not equals:
        raise Refused(f"--label: {label!r} is not allowed; allowed: KEY=VALUE", EXIT_USAGE)
    return key, value
