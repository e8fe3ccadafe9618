"""Tests of a replica's log on a real node: each numbered line once and in order, despite faults.

A proxy cuts connections, containers restart, pods are recreated, and the kubelet rotates logs. A line may be missing
only if the node has deleted it, and then the log says between which times.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
from contextlib import aclosing
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from cluster.images import INIT_IMAGE
from cluster_world import PATIENCE, Tenant
from faults.api_server import ApiServer
from faults.proxy import FaultProxy
from faults.trials import kubeconfig_of
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.logs import nanoseconds
from worlds import STATE, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from cluster.boot import Cluster
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.logs import LogCursor, LogLine


@pytest.fixture
async def proxy(cluster: Cluster, namespace: str) -> AsyncIterator[FaultProxy]:
    """Run a gateway before the API server that can drop connections, and counts requests."""
    async with ApiServer.reached(kubeconfig_of(cluster, namespace), namespace) as server:
        gateway = FaultProxy(server)
        async with gateway.running():
            yield gateway


@pytest.fixture
async def make_world(cluster: Cluster, namespace: str, proxy: FaultProxy) -> AsyncIterator[Callable[..., World]]:
    """Return a function that makes a back-end whose connections go through the proxy."""
    made: list[World] = []

    def make(**settings: Any) -> World:
        made.append(
            World(
                backend=KubernetesBackend(proxy.config(**settings)),
                image=INIT_IMAGE,
                namespace=namespace,
                claim=partial(cluster.volume, namespace=namespace),
                patience=PATIENCE,
                prepare=Tenant(cluster, namespace).prepare,
            )
        )
        return made[-1]

    yield make
    for each in made:
        await each.clear()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Return a world with the default settings."""
    return make_world()


@pytest.fixture
def _punctual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a status that a busy node reports late: streams are counted, and a reader would open another one.

    The clock is patched, since a node cannot be sped up; other tests check that a stream is opened again.
    """
    monkeypatch.setattr("ptjob_provider.core.kubernetes.logs.replica._LATE", 60.0)


class Reader:
    """Follows one replica's log in a task of its own."""

    def __init__(self, world: World, ref: JobRef, *, since: LogCursor | None = None) -> None:
        self.lines: list[LogLine] = []
        self.task = asyncio.create_task(self._read(world, ref, since))

    @property
    def texts(self) -> list[str]:
        """The program's output."""
        return [line.text for line in self.lines if not line.notice]

    @property
    def notices(self) -> list[LogLine]:
        """The notices about the log."""
        return [line for line in self.lines if line.notice]

    async def has(self, count: int) -> None:
        """Wait for this many lines."""
        async with asyncio.timeout(PATIENCE):
            while len(self.lines) < count:
                assert not self.task.done(), f"the log ended after {len(self.lines)} lines; {count} were waited for"
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        """Wait for the end of the log."""
        async with asyncio.timeout(PATIENCE):
            await self.task

    async def _read(self, world: World, ref: JobRef, since: LogCursor | None) -> None:
        async with aclosing(world.backend.logs(ref, f"{ref.name}-master-0", since=since)) as lines:
            async for line in lines:
                self.lines.append(line)


async def test_an_outage_is_not_met_with_a_storm(world: World, proxy: FaultProxy) -> None:
    """Pauses between tries grow; what was written meanwhile is read afterwards."""
    ref = await world.submit(counting(world, "away", count=900, pause=0.05))
    reader = Reader(world, ref)
    await reader.has(20)
    proxy.is_down = True
    proxy.reset_all()
    before = len(log_requests(proxy))
    await asyncio.sleep(30.0)
    tries = len(log_requests(proxy)) - before
    proxy.is_down = False
    await reader.end()

    assert tries <= 8, log_requests(proxy)
    assert reader.texts == numbered(900)
    assert not reader.notices


async def test_a_pod_that_the_operator_makes_anew_goes_on_in_the_same_log(world: World, proxy: FaultProxy) -> None:
    """The exit code is retryable by its policy: the pod is deleted, and another one gets its name."""
    ref = await world.submit(restarting(world, "anew", policy="ExitCode", code=138, held_in=range(3)))
    reader = Reader(world, ref)
    await break_in_each_run(world, reader, proxy)
    await reader.end()

    assert reader.texts == runs_of(3)
    assert not reader.notices
    assert len({line.cursor.pod_uid for line in reader.lines}) == 3


async def test_a_stream_that_lasts_loses_nothing_to_rotation(world: World, cluster: Cluster) -> None:
    """The kubelet begins a new file at 10 MiB; the stream continues in it.

    The runtime opens the new file, which makes the kubelet switch, before it stops writing to the old one: on a busy
    node the last lines of a file may be in no stream. If rotation happens right before the end, what is served then
    does not show whether a line is missing in between.
    """
    ref = await world.submit(filling(world, "full", megabytes=30, seconds=40))
    reader = Reader(world, ref)
    await reader.end()

    texts = [notice.text for notice in reader.notices]
    ends = ends_of_files(cluster, ref)
    lost = [jump for jump in jumps(reader.lines, 300_000) if jump[1] - 1 not in ends]
    assert (lost, [text for text in texts if "if anything" not in text]) == ([], [])
    assert ends


async def test_lines_lost_to_rotation_are_reported_with_their_time(
    world: World, proxy: FaultProxy, cluster: Cluster
) -> None:
    """Nobody can read while the kubelet begins a new file; the new file is read, and a notice covers the rest."""
    ref = await world.submit(filling(world, "lost", megabytes=40, seconds=60))
    reader = Reader(world, ref)
    await reader.has(10_000)
    proxy.is_down = True
    proxy.reset_all()
    for _ in range(2):  # the first may come a moment after the last line that was read
        await rotation(cluster, ref)
    proxy.is_down = False
    await reader.end()

    gaps = [(notice, *around(reader.lines, notice)) for notice in reader.notices]
    doubted = {(number_of(before), number_of(after, 400_000)) for _, before, after in gaps}
    ends, lost = ends_of_files(cluster, ref), {*jumps(reader.lines, 400_000)}
    assert doubted & lost
    assert {jump for jump in lost if jump[1] - 1 not in ends} <= doubted
    for notice, before, after in gaps:  # usually one; the kubelet may begin another file while this one is read
        assert f"between {time_of(before)} and {time_of(after)}" in notice.text
        assert "was gone at the node" in notice.text
        assert after is None or nanoseconds(before.timestamp) < nanoseconds(after.timestamp)


@pytest.mark.usefixtures("_punctual")
async def test_a_log_beyond_the_limit_of_streams_is_live_once_a_stream_is_free(
    make_world: Callable[..., World], proxy: FaultProxy, cluster: Cluster
) -> None:
    """One stream for two jobs: the second has it once the first has ended."""
    world = make_world(max_log_streams=1)
    first = Reader(
        world,
        await world.submit(
            counting(world, "first", count=20, pause=0.1, then="until [ -e /tmp/go ]; do sleep 0.1; done")
        ),
    )
    await first.has(20)
    second = Reader(world, await world.submit(counting(world, "second", count=200, pause=0.3)))
    await second.has(1)
    found = [line.text for line in second.lines]
    cluster.kubectl.let_end("first-master-0", "touch", "/tmp/go", namespace=world.namespace)  # noqa: S108 - in a pod
    await first.end()
    await second.has(2)
    is_live = not second.task.done()
    await second.end()

    assert "all log streams of this process are in use" in found[0]
    assert is_live
    assert (first.texts, second.texts) == (numbered(20), numbered(200))
    assert len(second.notices) == 1
    assert sum("follow=true" in target for target in log_requests(proxy)) == 2


async def test_a_container_that_restarts_without_a_stream_is_read_at_the_end_of_each_run(
    make_world: Callable[..., World],
) -> None:
    """Its end is noticed, and its lines are read before the node deletes them."""
    world = make_world(max_log_streams=1)
    holder = Reader(world, await world.submit(counting(world, "holder", count=1, pause=150.0)))
    await holder.has(1)

    reader = Reader(world, await world.submit(restarting(world, "ends", policy="OnFailure", code=1)))
    await reader.end()

    assert reader.texts == runs_of(3)
    assert not [notice.text for notice in reader.notices if "gone" in notice.text]
    holder.task.cancel()


async def test_a_paused_reader_loses_nothing(world: World, proxy: FaultProxy) -> None:
    """Nothing is read from the stream for half a minute, in which its connection breaks; then the rest is read."""
    ref = await world.submit(filling(world, "slow", megabytes=7, seconds=10))
    read = []
    async with asyncio.timeout(PATIENCE), aclosing(world.backend.logs(ref, "slow-master-0")) as lines:
        async for line in lines:
            read.append(line)
            if len(read) == 100:
                await asyncio.sleep(15.0)
                proxy.reset_all()
                await asyncio.sleep(15.0)

    assert jumps(read, 70_000) == []


def numbered(count: int) -> list[str]:
    """Return a counting job's output."""
    return [f"line {number}" for number in range(count)]


def runs_of(count: int) -> list[str]:
    """Return a restarting job's output."""
    return [f"run {run} line {number}" for run in range(count) for number in range(100)]


def counting(world: World, name: str, *, count: int, pause: float, then: str = ":") -> Manifest:
    """Build a job that writes a numbered line after each pause."""
    program = f"i=0; while [ $i -lt {count} ]; do echo line $i; i=$((i+1)); sleep {pause}; done; {then}"
    return world.job(name, ["sh", "-c", program])


async def break_in_each_run(world: World, reader: Reader, proxy: FaultProxy) -> None:
    """Break all connections in each of three runs; a run ends once it is read again, since its log may be deleted."""
    for run, number in enumerate((20, 140, 260)):
        await reader.has(number)
        proxy.reset_all()
        await reader.has(100 * run + 80)
        world.release(f"go{run}")


def restarting(world: World, name: str, *, policy: str, code: int, held_in: Sequence[int] = ()) -> Manifest:
    """Build a job that writes a hundred lines and fails, twice, before it succeeds; runs may be held at line 80."""
    held = (f"[ $run$i = {run}80 ] && until [ -e /state/go{run} ]; do sleep 0.1; done" for run in held_in)
    waits = "; ".join(held) or ":"
    program = f"""
        run=$(cat /state/run 2>/dev/null || echo 0)
        echo $((run+1)) > /state/run
        i=0; while [ $i -lt 100 ]; do echo run $run line $i; i=$((i+1)); sleep 0.05; {waits}; done
        [ $run -lt 2 ] && exit {code}; exit 0
    """
    return world.job(name, ["sh", "-c", program], policy=policy, **STATE)


def filling(world: World, name: str, *, megabytes: int, seconds: int) -> Manifest:
    """Build a job that writes ten thousand numbered lines of a hundred bytes per megabyte, in this many seconds."""
    pause = seconds / (megabytes * 10)
    each = (
        'printf "line %d %s\\n", i, "'
        + 80 * "."
        + '"; if (i % 1000 == 999) { fflush(); system("sleep '
        + f'{pause}") }}'
    )
    program = f"BEGIN {{ for (i = 0; i < {megabytes * 10_000}; i++) {{ {each} }} }}"
    return world.job(name, ["awk", program])


def number_of(line: LogLine | None, end: int = 0) -> int:
    """Return the number of a filling job's line; `end` if there is no line."""
    return int(line.text.split()[1]) if line else end


def time_of(line: LogLine | None) -> str:
    """Return the time in a notice; "its end" if no line follows, since the node may begin another file."""
    return line.timestamp if line else "its end"


def jumps(lines: list[LogLine], count: int) -> list[tuple[int, int]]:
    """Return the gaps in a filling job's numbers, including at its end: the number before and after each."""
    numbers = [-1, *(number_of(line) for line in lines if not line.notice), count]
    return [(before, after) for before, after in pairwise(numbers) if after != before + 1]


def around(lines: list[LogLine], notice: LogLine) -> tuple[LogLine, LogLine | None]:
    """Return the lines before and after a notice; after it there may be none."""
    place = lines.index(notice)
    return lines[place - 1], next(iter(lines[place + 1 :]), None)


async def rotation(cluster: Cluster, ref: JobRef) -> None:
    """Wait until the node has begun another file for rank 0's log."""
    before = file_of_log(cluster, ref)
    async with asyncio.timeout(PATIENCE):
        while file_of_log(cluster, ref) in {before, None}:  # noqa: ASYNC110 - the node has no event for it
            await asyncio.sleep(0.2)


def ends_of_files(cluster: Cluster, ref: JobRef) -> set[int]:
    """Return the number in the last line of each of the node's files for rank 0's log."""
    ends = set()
    for path in cluster.layout.logs.glob(f"pods/{ref.namespace}_{ref.name}-master-0_*/pytorch/0.log*"):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        ends |= {int(number) for number in re.findall(rb"line (\d+)", content)[-1:]}
    return ends


def file_of_log(cluster: Cluster, ref: JobRef) -> int | None:
    """Return the inode of the file to which the node writes rank 0's log; None while it begins one."""
    (folder,) = (cluster.layout.logs / "pods").glob(f"{ref.namespace}_{ref.name}-master-0_*")
    with contextlib.suppress(FileNotFoundError):
        return (folder / "pytorch" / "0.log").stat().st_ino
    return None


def log_requests(proxy: FaultProxy) -> list[str]:
    """Return path and query of the log requests."""
    return [asked.target for asked in proxy.asked if asked.resource == "pods/log"]
