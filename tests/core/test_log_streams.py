"""Tests of the limit of log streams: who has none waits for one, and reads at the end of its run at the latest."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, cast

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.logs import ReplicaLog
from ptjob_provider.core.logs import LogLine
from ptjob_provider.core.shared import cancelled
from rows import each_row
from scripted_node import REPLICA, ScriptedNode, ScriptedRun

pytestmark = pytest.mark.skips_waits

REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="job")
LINES = [(2.0, "at 2.0\n"), (3.0, "at 3.0\n")]


def node(*, free: int, **more: Any) -> ScriptedNode:
    """Return the node of a running replica, whose reader shares this many streams with others."""
    runs = [ScriptedRun(began=1, lines=LINES)]
    return ScriptedNode(runs=runs, log_streams=asyncio.Semaphore(free), **more)


def log_of(node: ScriptedNode) -> ReplicaLog:
    return ReplicaLog(cast("Any", node), cast("Any", node), REF, REPLICA)


async def read(node: ScriptedNode, into: list[LogLine]) -> None:
    async with aclosing(log_of(node).follow(None)) as lines:
        async for line in lines:
            into.append(line)  # noqa: PERF401 - the test looks at it meanwhile


def end(node: ScriptedNode) -> None:
    node.runs[-1].ended = True


async def test_a_log_is_read_once_a_stream_is_free() -> None:
    """Until then there is one notice and no request."""
    waiting, found = node(free=0), list[LogLine]()
    waiting.then = [end]
    reader = asyncio.create_task(read(waiting, found))
    await asyncio.sleep(600)
    before, asked = [line.text for line in found], list(waiting.asked)
    waiting.log_streams.release()
    await reader

    assert [text.partition(";")[0] for text in before] == [
        f"{REPLICA}: all log streams of this process are in use (max_log_streams)"
    ]
    assert asked == []
    assert [line.text for line in found[1:]] == ["at 2.0", "at 3.0"]
    assert waiting.asked[0]["follow"] == "true"


async def test_a_run_that_ends_before_a_stream_is_free_is_read_at_its_end() -> None:
    waiting, found = node(free=0, changes=[end]), list[LogLine]()
    reader = asyncio.create_task(read(waiting, found))
    await asyncio.wait({reader}, timeout=600)
    await cancelled(reader)

    assert [line.text for line in found if not line.notice] == ["at 2.0", "at 3.0"]
    assert ["follow" in query for query in waiting.asked] == [False]


@each_row("steps", range(6))
async def test_a_reader_that_loses_its_stream_to_another_waits_no_longer_than_its_run(steps: int) -> None:
    """Both saw a free one: rank 0s of many jobs start in one iteration of the loop."""
    loser, found = node(free=1, changes=[end]), list[LogLine]()
    reader = asyncio.create_task(read(loser, found))
    for _ in range(steps):
        await asyncio.sleep(0)
    other = asyncio.create_task(loser.log_streams.acquire())
    await asyncio.wait({reader}, timeout=600)
    await cancelled(reader, other)

    notices = [line.text for line in found if line.notice]
    assert [line.text for line in found if not line.notice] == ["at 2.0", "at 3.0"]
    assert len(notices) == ("follow" not in loser.asked[0])


async def test_a_single_read_needs_no_stream() -> None:
    async with asyncio.timeout(600):
        found = [line.text async for line in log_of(node(free=0)).snapshot(None)]

    assert found == ["at 2.0", "at 3.0"]


@each_row("steps", range(40))
@each_row("free", [0, 1])
async def test_a_reader_that_is_cancelled_keeps_no_stream(steps: int, free: int) -> None:
    """At whatever step of the loop: waiting, just given a stream, or reading."""
    shared = node(free=free)
    reader = asyncio.create_task(read(shared, []))
    for step in range(steps):
        await asyncio.sleep(0)
        if free == 0 and step == steps // 2:
            shared.log_streams.release()
    if free == 0 and steps == 0:
        shared.log_streams.release()
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    await asyncio.sleep(1)

    assert not shared.log_streams.locked()
    await shared.log_streams.acquire()
    assert shared.log_streams.locked()


async def test_a_free_stream_goes_to_the_reader_that_has_waited_longest() -> None:
    limit, found = asyncio.Semaphore(1), list[LogLine]()
    readers = []
    for name in ("first", "second", "third"):
        each = ScriptedNode(runs=[ScriptedRun(began=1, lines=[(2.0, f"{name}\n")])], log_streams=limit)
        each.then = [end]
        readers.append(asyncio.create_task(read(each, found)))
    async with asyncio.timeout(3600):
        await asyncio.gather(*readers)

    assert [line.text for line in found if not line.notice] == ["first", "second", "third"]


def test_a_limit_without_any_stream_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"max_log_streams: .* a whole number, 1 or more"):
        ClusterConfig(max_log_streams=0)
