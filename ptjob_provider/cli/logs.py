"""Implements `logs`: reads one replica's log, or all of them at once, and prints the selected lines."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from ptjob_provider.cli.output import EXIT_USAGE, Failure, notice, run, say_logged
from ptjob_provider.cli.parameters import not_allowed, of_one_job, span
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Cause
from ptjob_provider.core.diagnosis.causes import CAUSES
from ptjob_provider.core.errors import ClusterError, JobNotFound
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.logs import nanoseconds
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping
    from datetime import timedelta

    from ptjob_provider.cli.target import Target
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.logs import LogLine
    from ptjob_provider.core.run.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selection of lines, and their format.

    Attributes:
        follow: continue until the container has ended.
        tail: number of last lines to begin with; None begins with the first line.
        after: nanoseconds since 1970; older lines are left out. None: all lines.
        timestamps: begin each line with its time.
        container: a container other than the training's; None: the training's.
    """

    follow: bool = False
    tail: int | None = None
    after: int | None = None
    timestamps: bool = False
    container: str | None = None

    def takes(self, line: LogLine) -> bool:
        """Return whether the line is recent enough."""
        return self.after is None or nanoseconds(line.timestamp) >= self.after


def _instant(context: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Read an RFC 3339 instant; one without an offset is UTC."""
    if value is None:
        return None
    try:
        instant = datetime.fromisoformat(value)
    except ValueError:
        raise not_allowed(value, "an instant such as 2026-11-22T09:30:00Z", context, param) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Stream the log until the container ends.")
@click.option("-t", "--tail", type=click.IntRange(min=-1), metavar="N", help="Begin with the last N lines; -1: all.")
@click.option(
    "-i",
    "--replica",
    "--instance",
    metavar="REPLICA",
    help="A pod's name, its end (worker-0) or a rank.  [default: rank 0]",
)
@click.option("--all", "every", is_flag=True, help="Print the logs of all replicas, each line with its replica's name.")
@click.option("--since", callback=span, metavar="SPAN", help="Only lines newer than this: 90s, 10m, 2h.")
@click.option("--since-time", callback=_instant, metavar="INSTANT", help="Only lines after this time (RFC 3339).")
@click.option("--timestamps", is_flag=True, help="Print the time of each line.")
@click.option("-c", "--container", metavar="NAME", help="Another container of the pod.  [default: the training]")
@of_one_job
def logs(
    target: Target,
    name: str,
    *,
    follow: bool,
    tail: int | None,
    replica: str | None,
    every: bool,
    since: timedelta | None,
    since_time: datetime | None,
    timestamps: bool,
    container: str | None,
) -> None:
    """Print a replica's log."""
    if every and replica is not None:
        raise click.UsageError("--all and --replica exclude each other")
    if since is not None and since_time is not None:
        raise click.UsageError("--since and --since-time exclude each other")
    begin = datetime.now(UTC) - since if since is not None else since_time
    selection = Selection(
        follow=follow,
        tail=None if tail == -1 else tail,
        after=nanoseconds(begin.isoformat()) if begin is not None else None,
        timestamps=timestamps,
        container=container,
    )
    run(show(target, name, selection, replica=replica, every=every))


def find_replica(job: Manifest, name: str | None) -> str:
    """Return the pod for `-i`: a pod's name, the end of one, or a rank; rank 0 by default.

    Raises:
        Failure: the job has no such replica; the message names the existing ones.
    """
    known = kinds.replicas(job)
    if not known:
        raise Failure(f"{job['metadata']['name']} has no replicas, and so no log")
    if name is None:
        return known[0].name
    beginning = f"{job['metadata']['name']}-"
    for replica in known:
        ends = {replica.name.removeprefix(beginning), f"{replica.role}-{replica.index}"}
        if name in {replica.name, str(replica.rank), *ends}:
            return replica.name
    unranked = kinds.unranked(job)
    for step, replica_name in unranked.items():
        if name in {step, replica_name, replica_name.removeprefix(beginning)}:
            return replica_name
    all_replicas = {**{str(replica.rank): replica.name for replica in known}, **unranked}
    names = ", ".join(f"{short} = {replica_name}" for short, replica_name in all_replicas.items())
    raise Failure(f"--replica: {name!r} is not a replica of this job; allowed: {names}", EXIT_USAGE)


async def show(target: Target, name: str, selection: Selection, *, replica: str | None, every: bool) -> None:
    """Print one replica's log, or all replicas'."""
    import asyncio

    backend = target.open()
    job = await target.find(backend, name)
    ref = JobRef.of(job)
    if selection.container not in {None, kinds.named(ref.kind).CONTAINER}:
        place, read = (find_replica(job, replica), selection.container or ""), target.inspector().container_log
        await _print(read(ref, *place, follow=selection.follow, tail=selection.tail), selection, prefix="")
        return
    names = {each.name: f"[{each.role}-{each.index}] " for each in kinds.replicas(job)}
    names |= {each: f"[{step}] " for step, each in kinds.unranked(job).items()}
    if not every or not names:
        names = {find_replica(job, replica): ""}
    prints = [_print_replica(backend, ref, pod, selection, prefixes=names) for pod in names]
    reasons = await asyncio.gather(*prints) if selection.follow else [await each for each in prints]
    if whys := [why for why in reasons if why]:
        raise Failure("\n".join(whys))
    with suppress(ClusterError):  # the log was read; the hint is optional
        await _name_first_failure(backend, ref, names)


async def _name_first_failure(backend: Backend, ref: JobRef, shown: Collection[str]) -> None:
    """Print which other replica's log shows why the job failed, according to its current state."""
    job = await backend.get(ref.kind, ref.namespace, ref.name)
    if kinds.read_status(job).phase is not JobPhase.FAILED:
        return
    snapshot = await _snapshot(backend, ref)
    if hint := failed_first(snapshot, shown):
        notice(hint)


async def _snapshot(backend: Backend, ref: JobRef) -> Snapshot:
    from ptjob_provider.core.run.snapshot import look

    return await look(backend, ref.namespace, ref.name, kind=ref.kind, inspect=False)


async def _print_replica(
    backend: Backend, ref: JobRef, pod: str, selection: Selection, *, prefixes: Mapping[str, str]
) -> str:
    """Print one replica's log, and return why there is none.

    "": it was printed, it is empty, or it is missing for an unknown reason.

    Raises:
        JobNotFound: the job no longer exists.
    """
    try:
        if await _print(_lines(backend, ref, pod, selection), selection, prefix=prefixes[pod]):
            return ""
        if selection.follow:  # following ends without a word where the log is gone; a read says so
            once = replace(selection, follow=False)
            await _print(_lines(backend, ref, pod, once), once, prefix=prefixes[pod])
    except JobNotFound as error:
        await backend.get(ref.kind, ref.namespace, ref.name)
        return f"{error}; more: ptjob get {ref.name}"
    return _why_none(await _snapshot(backend, ref), pod)


def _why_none(snapshot: Snapshot, pod: str) -> str:
    """Return why a replica has no log; "" if it has run, or if that is unknown."""
    ref, diagnosis = snapshot.submission.ref, snapshot.diagnosis
    why = diagnosis.summary if diagnosis and diagnosis.cause is not Cause.UNKNOWN else snapshot.waiting
    if not why or snapshot.record.has_run(pod):
        return ""
    return f"{ref}: {pod} has no log, its training has not begun: {why}; more: ptjob get {ref.name}"


async def _lines(backend: Backend, ref: JobRef, replica: str, selection: Selection) -> AsyncGenerator[LogLine, None]:
    """Yield the log; a tail is read first, and following continues after it."""
    cursor = None
    if selection.tail is not None:
        # With `-t 0`, the last line is read but not printed, because following continues after it.
        last = deque([line async for line in backend.logs(ref, replica, follow=False)], maxlen=max(selection.tail, 1))
        for line in last if selection.tail else ():
            yield line
        cursor = last[-1].cursor if last else None
    if selection.tail is None or selection.follow:
        async with aclosing(backend.logs(ref, replica, since=cursor, follow=selection.follow)) as lines:
            async for line in lines:
                yield line


async def _print(lines: AsyncGenerator[LogLine, None], selection: Selection, *, prefix: str) -> bool:
    """Print the selected lines, and return whether there were any."""
    continues = was_any = False
    async with aclosing(lines):
        async for line in lines:
            if not selection.takes(line):
                continue
            if line.notice:
                notice(f"{prefix}{line.text}")
                continue
            stamp = f"{line.timestamp} " if selection.timestamps else ""
            # The pieces of a long line are printed as one line, unless the lines of several logs alternate.
            begins = "" if continues and not prefix else f"{prefix}{stamp}"
            say_logged(f"{begins}{line.text}", nl=bool(prefix) or not line.continues)
            continues, was_any = line.continues, True
    return was_any


def failed_first(snapshot: Snapshot, shown: Collection[str]) -> str:
    """Return which replica failed first and how to show its log; "" if that log is shown, or if none failed."""
    why, ref, ranks = snapshot.diagnosis, snapshot.submission.ref, snapshot.ranks
    if why is None or CAUSES[why.cause].of_whole_job or why.replica in shown or why.replica not in ranks:
        return ""
    short, rank = why.replica.removeprefix(f"{ref.name}-"), ranks[why.replica]
    who = short if rank is None else f"{short} (rank {rank})"
    return f"{who} failed first: ptjob logs {ref.name} -i {short}"
