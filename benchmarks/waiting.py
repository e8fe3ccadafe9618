"""Measures the cost of waiting for many jobs, and the delay of their endings: each contender in the same four phases.

1. Start: its duration, its memory, the memory that remains per job, the loop's lag meanwhile.
2. No changes: requests and CPU.
3. Irrelevant changes, a fixed number of times per second: CPU.
4. Jobs end, one after the other: the loop's lag, and the delay of each ending - since the change was sent, and since a
  bare watch, which parses nothing and runs in a process of its own, has received it.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import meter, requests_made
from benchmarks.contender import Assignment
from benchmarks.many_jobs import in_parallel
from benchmarks.process import Kind, running
from ptjob_provider.core.run.submit import Submission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.apiserver import ApiServer
    from benchmarks.process import Contender
    from ptjob_provider.core.identity import Manifest

REFERENCE = Kind(name="bare watch, nothing parsed", module="floors", variant="raw")

_BEGIN = 90.0
_LATEST = 20.0
"""Seconds after the last ending; an ending that a contender does not know by then counts as missed."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Durations of the phases, and their changes.

    Attributes:
        settle: maximum seconds of the start.
        quiet: seconds without changes.
        busy: seconds with irrelevant changes.
        changes: irrelevant changes per second.
        endings: how many jobs end.
        ending: the seconds in which they do.
    """

    settle: float = 60.0
    quiet: float = 10.0
    busy: float = 10.0
    changes: float = 20.0
    endings: int = 1000
    ending: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """The objects to wait for: jobs, or pods for contenders that wait for pods.

    Attributes:
        resource: plural name of the resource, for kubectl.
        path: path of the collection on the API server.
        objects: the objects, as the server returned them.
        touch: changes an irrelevant part of an object.
        finish: gives an object the status of a success.
        revive: gives an object its first status again.
    """

    server: ApiServer
    namespace: str
    resource: str
    path: str
    objects: Sequence[Manifest]
    touch: Callable[[Manifest, str], Awaitable[None]]
    finish: Callable[[Manifest], Awaitable[Any]]
    revive: Callable[[Manifest], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class User:
    """A contender's identity on the server: its kubeconfig, and the name under which its requests are counted."""

    kubeconfig: Path
    counted_as: str


@dataclass(frozen=True, kw_only=True)
class Waited:
    """Measurements of one contender. Times in seconds, memory in bytes; nan if nothing could be measured.

    Attributes:
        begin: duration of its start; nan: it never finished.
        begin_peak: peak memory during the start, minus the memory before the start.
        held: memory after the start, minus the memory before it.
        connections: open connections after the start.
        quiet_requests: requests without changes.
        quiet_cpu: cores used without changes.
        busy_cpu: cores used with irrelevant changes.
        begin_lag: the loop's lag during the start.
        end_lag: the loop's lag while jobs ended.
        since_sent: delay of each ending, since its change was sent.
        since_seen: delay of each ending, since the bare watch received it.
        missed: number of endings that the contender did not know in time.
    """

    contender: str
    size: int
    plan: Plan
    begin: float
    begin_peak: int
    held: int
    connections: int
    quiet_requests: float
    quiet_cpu: float
    busy_cpu: float
    begin_lag: Sequence[float]
    end_lag: Sequence[float]
    since_sent: Sequence[float]
    since_seen: Sequence[float]
    missed: int


def assignment(crowd: Crowd, user: User, **options: Any) -> Assignment:
    """Return a contender's assignment."""
    jobs = crowd.objects if crowd.resource == "pytorchjobs" else ()
    return Assignment(
        kubeconfig=str(user.kubeconfig),
        namespace=crowd.namespace,
        names=[each["metadata"]["name"] for each in crowd.objects],
        submissions=[Submission.of(job).to_dict() for job in jobs],
        options={"path": crowd.path, "resource": crowd.resource, **options},
    )


@asynccontextmanager
async def referee(crowd: Crowd, user: User, scratch: Path) -> AsyncIterator[Contender]:
    """Run the bare watch, the reference for every contender's endings."""
    async with running(REFERENCE, assignment(crowd, user), scratch) as reference:
        reference.go()
        await reference.settle(_BEGIN)
        yield reference


async def measure(
    kind: Kind, crowd: Crowd, user: User, plan: Plan, *, reference: Contender, scratch: Path, **options: Any
) -> Waited:
    """Measure one contender through all phases, and restore the crowd afterwards."""
    async with running(kind, assignment(crowd, user, **options), scratch) as contender:
        loaded = meter.memory(contender.pid)
        meter.forget_peak(contender.pid)
        contender.watch_its_lag()
        contender.go()
        await asyncio.sleep(1.0)
        await contender.find()
        begin = await contender.settle(plan.settle)
        begin_lag = await contender.lag()
        held, connections = meter.memory(contender.pid), meter.connections(contender.pid)
        before = await requests_made.read(crowd.server, user.counted_as)
        quiet_cpu = await _cores(contender, asyncio.sleep(plan.quiet))
        quiet_requests = await requests_made.read(crowd.server, user.counted_as) - before
        busy_cpu = await _cores(contender, _change(crowd, plan)) if plan.busy else math.nan
        ended = await _endings(contender, crowd, plan, reference)
        return Waited(
            contender=kind.name,
            size=len(crowd.objects),
            plan=plan,
            begin=1.0 + begin if begin is not None else math.nan,
            begin_peak=held.peak - loaded.rss,
            held=held.pss - loaded.pss,
            connections=connections,
            quiet_requests=quiet_requests.of_user,
            quiet_cpu=quiet_cpu,
            busy_cpu=busy_cpu,
            begin_lag=begin_lag,
            **ended,
        )


async def _cores(contender: Contender, meanwhile: Awaitable[None]) -> float:
    began_at, before = time.monotonic(), meter.cpu_seconds(contender.pid)
    await meanwhile
    return (meter.cpu_seconds(contender.pid) - before) / (time.monotonic() - began_at)


async def _change(crowd: Crowd, plan: Plan) -> None:
    """Change one job after the other, on a fixed schedule."""
    number = int(plan.busy * plan.changes)
    chosen = [crowd.objects[index % len(crowd.objects)] for index in range(number)]
    await paced(chosen, plan.busy, lambda each: crowd.touch(each, str(time.time())))


async def _endings(contender: Contender, crowd: Crowd, plan: Plan, reference: Contender) -> dict[str, Any]:
    chosen = spread(crowd.objects, plan.endings)
    sent: dict[str, float] = {}

    async def finish(each: Manifest) -> None:
        sent[each["metadata"]["name"]] = time.time()
        await crowd.finish(each)

    contender.watch_its_lag()
    await paced(chosen, plan.ending, finish)
    known = await _known(contender, len(chosen))
    lag, seen = await contender.lag(), await reference.endings()
    await in_parallel(crowd.revive, chosen)
    return {
        "end_lag": lag,
        "since_sent": [at - sent[name] for name, at in known.items() if name in sent],
        "since_seen": since_seen(known, seen, sent),
        "missed": len(chosen) - len(known),
    }


def since_seen(known: Mapping[str, float], seen: Mapping[str, float], sent: Mapping[str, float]) -> list[float]:
    """Return the delay of each ending since the bare watch received it.

    An event that the watch received before the change was sent belongs to an earlier ending, and is ignored. If the
    watch's only connection has ended in the middle of a run, the later endings have no reference.
    """
    return [at - seen[name] for name, at in known.items() if sent.get(name, math.inf) <= seen.get(name, -math.inf)]


def spread(objects: Sequence[Manifest], number: int) -> Sequence[Manifest]:
    """Return that many objects, evenly distributed."""
    step = max(1, len(objects) // max(1, number))
    return objects[::step][:number]


async def _known(contender: Contender, number: int) -> dict[str, float]:
    """Return the endings that the contender knows, once it knows all or the time is up."""
    deadline = time.monotonic() + _LATEST
    while True:
        known = await contender.endings()
        if len(known) >= number or time.monotonic() > deadline:
            return known
        await asyncio.sleep(0.5)


async def paced(chosen: Sequence[Manifest], seconds: float, act: Callable[[Manifest], Awaitable[None]]) -> None:
    """Start `act` for each object, evenly over so many seconds, without waiting for the previous one."""
    began_at = time.monotonic()
    acts = []
    for number, each in enumerate(chosen):
        await asyncio.sleep(max(0.0, began_at + number * seconds / len(chosen) - time.monotonic()))
        acts.append(asyncio.ensure_future(act(each)))
    await asyncio.gather(*acts)
    await asyncio.sleep(max(0.0, began_at + seconds - time.monotonic()))
