"""Tests of log streams: streams up to the limit, and turns for other readers in order of arrival."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.client import log_streams
from ptjob_provider.core.kubernetes.client.log_streams import LogStreams

pytestmark = pytest.mark.skips_waits

PATIENCE = 20.0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the interval of turns to a fiftieth; only their order matters."""
    monkeypatch.setattr(log_streams, "_INTERVAL", 0.2)  # a test cannot take minutes
    monkeypatch.setattr(log_streams, "_SPACING", 0.01)


async def test_streams_are_given_up_to_the_limit() -> None:
    queue = LogStreams(2)

    async with queue.slot() as first, queue.slot() as second, queue.slot() as third:
        assert [first.has_stream, second.has_stream, third.has_stream] == [True, True, False]


async def test_a_stream_that_becomes_free_goes_to_whoever_has_waited_longest() -> None:
    """A reader that has left the queue is skipped."""
    queue = LogStreams(1)

    async with AsyncExitStack() as first, AsyncExitStack() as second:
        await first.enter_async_context(queue.slot())
        await second.enter_async_context(queue.slot())
        async with queue.slot() as third, queue.slot() as fourth:
            await second.aclose()
            await first.aclose()
            async with asyncio.timeout(PATIENCE):
                await third.turn()

            assert (third.has_stream, fourth.has_stream) == (True, False)


async def test_a_place_that_is_left_by_a_cancelled_reader_is_free_again() -> None:
    queue = LogStreams(1)
    reader = asyncio.create_task(_sit(queue))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)

    async with queue.slot() as place:
        assert place.has_stream


@pytest.mark.usefixtures("quick")
async def test_turns_go_round() -> None:
    """The numbers of turns of five waiting readers differ by at most one."""
    queue = LogStreams(1)
    turns: list[int] = []
    async with queue.slot(), asyncio.timeout(PATIENCE):
        readers = [asyncio.create_task(_take_turns(queue, number, turns)) for number in range(5)]
        while len(turns) < 20:  # noqa: ASYNC110 - the readers set no event
            await asyncio.sleep(0.01)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    counts = [turns[:20].count(number) for number in range(5)]
    assert max(counts) - min(counts) <= 1, turns


async def test_turns_begin_at_most_twice_a_second() -> None:
    queue = LogStreams(1)
    starts = [queue.next_start() for _ in range(100)]

    assert starts[-1] - starts[0] == pytest.approx(99 * 0.5)


@pytest.mark.usefixtures("quick")
async def test_a_reader_that_is_behind_does_not_wait_for_its_interval() -> None:
    """It joins the end of the queue at once."""
    queue = LogStreams(1)
    clock = asyncio.get_running_loop().time
    async with queue.slot(), queue.slot() as place, asyncio.timeout(PATIENCE):
        await place.turn()
        before, last = clock(), queue.next_start()
        await place.turn(is_behind=True)

        assert last + 0.01 <= clock() + 0.005
        await place.turn()
        assert clock() - before >= 0.2


async def test_few_read_at_once() -> None:
    queue = LogStreams(1)
    async with AsyncExitStack() as four:
        for _ in range(4):
            await four.enter_async_context(queue.reading())
        fifth = asyncio.create_task(_read(queue))
        await asyncio.sleep(0.01)
        assert not fifth.done()

    async with asyncio.timeout(PATIENCE):
        await fifth


def test_no_stream_at_all_is_refused() -> None:
    """Turns alone could not keep up."""
    with pytest.raises(InvalidSpec, match=r"max_log_streams: .* a whole number, 1 or more"):
        ClusterConfig(max_log_streams=0)


async def _sit(queue: LogStreams) -> None:
    async with queue.slot():
        await asyncio.Event().wait()


async def _read(queue: LogStreams) -> None:
    async with queue.reading():
        pass


async def _take_turns(queue: LogStreams, number: int, turns: list[int]) -> None:
    async with queue.slot() as place:
        while True:
            await place.turn()
            assert not place.has_stream
            turns.append(number)
