"""Implement `logs`: read one replica's log, or all of them at once, and print the selected lines."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ptjob_provider.cli.output import EXIT_USAGE, Refused, notice, run
from ptjob_provider.cli.printable import say_logged
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Cause
from ptjob_provider.core.diagnosis.causes import OF_THE_WHOLE_JOB
from ptjob_provider.core.errors import ClusterError, InvalidSpec, JobNotFound
from ptjob_provider.core.history import ContainerKind
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.logs import nanoseconds
from ptjob_provider.core.run.snapshot import look
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping

    from ptjob_provider.cli.place import Place
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.logs import LogLine
    from ptjob_provider.core.run.snapshot import Snapshot

_NOT_BEGUN = "is waiting to start"
"""The kubelet's message for a container that has no log yet; requesting it is no wrong usage."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Selection of lines, and their format.

    Attributes:
        follow: continue until the container has ended.
        tail: number of last lines to begin with; None begins with the first line.
        after: nanoseconds since 1970; older lines are left out. None: all lines.
        timestamps: begin each line with its time.
        container: a container other than the training's; None: the training's.
    """

    follow: bool
    tail: int | None
    after: int | None
    timestamps: bool
    container: str | None

    @classmethod
    def of(
        cls,
        *,
        follow: bool,
        tail: int | None,
        since: timedelta | None,
        since_time: datetime | None,
        timestamps: bool,
        container: str | None,
    ) -> Wanted:
        """Read the options; `-t -1` selects all lines, as in Arena."""
        begin = datetime.now(UTC) - since if since is not None else since_time
        after = nanoseconds(begin.isoformat()) if begin is not None else None
        tail = None if tail is not None and tail < 0 else tail
        return cls(follow=follow, tail=tail, after=after, timestamps=timestamps, container=container)

    def takes(self, line: LogLine) -> bool:
        """Return whether the line is recent enough."""
        return self.after is None or nanoseconds(line.timestamp) >= self.after


def show(place: Place, name: str, wanted: Wanted, *, replica: str | None, every: bool) -> None:
    """Print one replica's log, or all replicas'."""
    run(_show(place, name, wanted, replica=replica, every=every))


def find_replica(job: Manifest, wanted: str | None) -> str:
    """Return the pod for `-i`: a pod's name, the end of one, or a rank; rank 0 by default.

    Raises:
        Refused: the job has no such replica; the message names the existing ones.
    """
    replicas = kinds.replicas(job)
    if wanted is None:
        return replicas[0].name
    beginning = f"{job['metadata']['name']}-"
    for replica in replicas:
        ends = {replica.name.removeprefix(beginning), f"{replica.role}-{replica.index}"}
        if wanted in {replica.name, str(replica.rank), *ends}:
            return replica.name
    names = ", ".join(f"{replica.rank} = {replica.name}" for replica in replicas)
    raise Refused(f"--replica: {wanted!r} is not a replica of this job; allowed: {names}", EXIT_USAGE)


async def _show(place: Place, name: str, wanted: Wanted, *, replica: str | None, every: bool) -> None:
    backend = place.open()
    job = await place.find(backend, name)
    ref = JobRef.of(job)
    if wanted.container not in {None, kinds.named(ref.kind).CONTAINER}:
        pod = find_replica(job, replica)
        await _print_container(place, ref, pod, wanted)
        return
    names = {each.name: f"[{each.role}-{each.index}] " for each in kinds.replicas(job)}
    if not every:
        names = {find_replica(job, replica): ""}
    logs = [_print_replica(backend, ref, pod, wanted, marks=names) for pod in names]
    untold = await asyncio.gather(*logs) if wanted.follow else [await log for log in logs]
    if whys := [why for why in untold if why]:
        raise Refused("\n".join(whys))
    with suppress(ClusterError):  # the log was read; the hint is optional
        await _tell_who_failed_first(backend, ref, names)


async def _tell_who_failed_first(backend: Backend, ref: JobRef, shown: Collection[str]) -> None:
    """Print which other replica's log shows why the job failed, according to its current state."""
    job = await backend.get(ref.kind, ref.namespace, ref.name)
    if kinds.read_status(job).phase is not JobPhase.FAILED:
        return
    seen = await look(backend, ref.namespace, ref.name, kind=ref.kind, inspect=False)
    if said := failed_first(seen, shown):
        notice(said)


async def _print_replica(backend: Backend, ref: JobRef, pod: str, wanted: Wanted, *, marks: Mapping[str, str]) -> str:
    """Print one replica's log; return why there is none, "" if it has run and its log is not lost.

    Raises:
        JobNotFound: the job no longer exists.
    """
    gone = ""
    try:
        if await _print(_lines(backend, ref, pod, wanted), wanted, mark=marks[pod]):
            return ""
    except JobNotFound as error:
        gone = str(error)
    seen = await look(backend, ref.namespace, ref.name, kind=ref.kind, inspect=False)
    if gone and _may_have_run(seen, pod):
        return instead_of(gone, seen, marks)
    return _why_none(seen, pod)


def _may_have_run(seen: Snapshot, pod: str) -> bool:
    """Return whether a replica whose pod is gone has run, or may have: others did, and nothing is known of it."""
    record, why = seen.record, _known_cause(seen)
    is_told_of = any(end.replica == pod for end in record.terminations) or (why is not None and why.replica == pod)
    others_ran = record.first_running_at is not None
    return record.has_run(pod) or not (why or seen.waiting) or (others_ran and not is_told_of)


def _known_cause(seen: Snapshot) -> Diagnosis | None:
    """Return the diagnosis; None for one without a cause, which does not explain a missing log either."""
    return seen.diagnosis if seen.diagnosis and seen.diagnosis.cause is not Cause.UNKNOWN else None


def _why_none(seen: Snapshot, pod: str) -> str:
    """Return why a replica has no log; "" if it has run, or if that is unknown."""
    ref = seen.submission.ref
    diagnosis = _known_cause(seen)
    why = diagnosis.summary if diagnosis else seen.waiting
    if not why or seen.record.has_run(pod):
        return ""
    before = [
        end.container for end in seen.record.terminations if end.replica == pod and end.kind is ContainerKind.INIT
    ]
    its_log = f"; what ran before it: ptjob logs {ref.name} -i {pod} -c {before[-1]}" if before else ""
    return f"{ref}: {pod} has no log, its training has not begun: {why}{its_log}; more: ptjob get {ref.name}"


async def _print_container(place: Place, ref: JobRef, pod: str, wanted: Wanted) -> None:
    """Print the log of another container of the pod: a sidecar, or the one that fetched the code."""
    site = place.site()
    try:
        async with aclosing(site.container_log(ref, pod, wanted.container or "", follow=wanted.follow)) as lines:
            await _print(_chosen(lines, wanted), wanted, mark="")
    except InvalidSpec as error:
        if _NOT_BEGUN not in str(error):
            raise
        raise Refused(f"{error}; more: ptjob get {ref.name}") from error


async def _lines(backend: Backend, ref: JobRef, replica: str, wanted: Wanted) -> AsyncGenerator[LogLine, None]:
    """Yield the selected lines; a tail is read first, and following continues after it."""
    cursor = None
    if wanted.tail is not None:
        # At least one line is read, and not printed for `-t 0`: following continues after it.
        last = deque([line async for line in backend.logs(ref, replica, follow=False)], maxlen=max(wanted.tail, 1))
        for line in last if wanted.tail else ():
            if wanted.takes(line):
                yield line
        cursor = last[-1].cursor if last else None
    if wanted.tail is None or wanted.follow:
        async with aclosing(backend.logs(ref, replica, since=cursor, follow=wanted.follow)) as lines:
            async for line in lines:
                if wanted.takes(line):
                    yield line


async def _chosen(lines: AsyncGenerator[LogLine, None], wanted: Wanted) -> AsyncGenerator[LogLine, None]:
    """Yield the selected lines of a log that is read from its beginning."""
    if wanted.tail is None or wanted.follow:
        async for line in lines:
            if wanted.takes(line):
                yield line
        return
    for line in deque([line async for line in lines], maxlen=wanted.tail):
        if wanted.takes(line):
            yield line


async def _print(lines: AsyncGenerator[LogLine, None], wanted: Wanted, *, mark: str) -> bool:
    """Print the lines, and return whether there were any."""
    goes_on = was_any = False
    async with aclosing(lines):
        async for line in lines:
            if line.notice:
                notice(f"{mark}{line.text}")
                continue
            stamp = f"{line.timestamp} " if wanted.timestamps else ""
            # A piece of a long line is not a line of its own in a single log; in several logs each piece is.
            begins = "" if goes_on and not mark else f"{mark}{stamp}"
            say_logged(f"{begins}{line.text}", nl=bool(mark) or not line.continues)
            goes_on, was_any = line.continues, True
    return was_any


_NAMED = 5


def instead_of(gone: str, seen: Snapshot, shown: Collection[str]) -> str:
    """Return a sentence that a log is gone, which other ones are left, and what `ptjob get` shows."""
    name, left = seen.submission.ref.name, [each for each in _left(seen) if each not in shown]
    parts = [gone]
    if left:
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        names = ", ".join(_short(seen, each) for each in left[:_NAMED])
        parts.append(f"still to be read: {names}{more} (ptjob logs {name} -i {_short(seen, left[0])})")
    why = seen.diagnosis
    whose = _short(seen, why.tail_of or why.replica) if why and why.log_tail else ""
    parts.append(f"{f'last lines of {whose}' if whose else 'more'}: ptjob get {name}")
    return "; ".join(parts)


def failed_first(seen: Snapshot, shown: Collection[str]) -> str:
    """Return which replica failed first and how to show its log; "" if it is shown, or if none failed."""
    why, ref, ranks = seen.diagnosis, seen.submission.ref, seen.submission.ranks
    if why is None or why.cause in OF_THE_WHOLE_JOB or why.replica in shown or why.replica not in ranks:
        return ""
    short = _short(seen, why.replica)
    read = f"ptjob logs {ref.name} -i {short}" if why.replica in _left(seen) else f"ptjob get {ref.name}"
    return f"{short} (rank {ranks[why.replica]}) failed first: {read}"


def _left(seen: Snapshot) -> list[str]:
    """Return the replicas that have run and still have pods, with the one that failed first in front."""
    there = {seen.replica_of(pod) for pod in seen.pods}
    left = [name for name in seen.submission.ranks if name in there and seen.record.has_run(name)]
    root = seen.diagnosis.replica if seen.diagnosis else ""
    return sorted(left, key=lambda name: name != root)


def _short(seen: Snapshot, replica: str) -> str:
    return replica.removeprefix(f"{seen.submission.ref.name}-")
