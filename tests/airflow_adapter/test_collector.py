"""Thousands of triggers wait without Python's garbage collector looking through them; nothing is kept for that."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from airflow_adapter.test_data_arrival import drop, watcher
from airflow_adapter.test_trigger import running, show, trigger
from airflow_adapter.triggerer import StandInStore, Triggerer
from ptjob_provider.airflow import collector
from ptjob_provider.airflow.collector import Collector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from fakes import ScriptedBackend

INTERVAL, CALM, QUIET = 0.02, 0.2, 0.1


class Cycle:
    """What only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    gc.collect()
    yield
    gc.unfreeze()


@contextlib.asynccontextmanager
async def alive(owner: Collector, number: int) -> AsyncIterator[contextlib.ExitStack]:
    """Have so many begin, and wait until all is calm."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            stack.enter_context(owner.one_more())
        await asyncio.sleep(CALM + 10 * INTERVAL)
        yield stack


def three_are_many(*, quiet: float = QUIET, longest: float = 60.0) -> Collector:
    return Collector(many=3, interval=INTERVAL, calm=CALM, quiet=quiet, longest=longest)


@contextlib.asynccontextmanager
async def many_ended(owner: Collector) -> AsyncIterator[weakref.ref[Cycle]]:
    """Have as many end as go on waiting, and give what they left behind."""
    async with alive(owner, 10) as first:
        cycle = Cycle()
        garbage = weakref.ref(cycle)
        async with alive(owner, 3):
            del cycle
            first.close()
            yield garbage


async def one_more_ends(owner: Collector) -> None:
    with owner.one_more():
        await asyncio.sleep(QUIET / 2)


async def taken_back(garbage: weakref.ref[Cycle] | None = None) -> None:
    """Return once nothing is aside, or this is freed; pytest's own limit ends a wait in vain."""
    while gc.get_freeze_count() if garbage is None else garbage() is not None:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(INTERVAL)


async def test_few_triggers_change_nothing() -> None:
    """A triggerer that does other work is left as it is."""
    async with alive(three_are_many(), 2):
        assert gc.get_freeze_count() == 0


async def test_many_are_put_aside_with_what_they_make_until_they_wait() -> None:
    """A full collection does not look at it any more."""
    owner = three_are_many()

    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(owner.one_more())
        await asyncio.sleep(0)
        early = [Cycle() for _ in range(50)]
        await asyncio.sleep(CALM + 10 * INTERVAL)
        late = [Cycle() for _ in range(50)]

        looked_at = gc.get_objects()

    assert not {id(each) for each in early} & {id(each) for each in looked_at}
    assert {id(each) for each in late} <= {id(each) for each in looked_at}


async def test_when_all_is_calm_nothing_more_is_put_aside() -> None:
    """Whatever else runs in the process is collected as ever."""
    async with alive(three_are_many(), 3):
        cycle = Cycle()
        garbage = weakref.ref(cycle)
        await asyncio.sleep(5 * INTERVAL)
        del cycle
        gc.collect()

        assert garbage() is None


async def test_garbage_is_freed_when_as_many_have_ended_as_live() -> None:
    """What was put aside is taken back, looked through once, and put aside again for those that go on waiting."""
    owner = three_are_many()
    async with alive(owner, 4) as first:
        cycle = Cycle()
        garbage = weakref.ref(cycle)
        async with alive(owner, 3):
            del cycle
            gc.collect()
            kept = garbage() is not None
            first.close()
            kept_at_once = garbage() is not None
            await taken_back(garbage)

            assert (kept, kept_at_once) == (True, True)
            assert gc.get_freeze_count() > 0


async def test_what_is_put_aside_is_left_alone_while_others_end() -> None:
    """Looking through it takes a fifth of a second, for which whoever ends next would wait."""
    owner = three_are_many(quiet=3.0)
    async with many_ended(owner) as garbage:
        until = asyncio.get_running_loop().time() + 4.0
        while asyncio.get_running_loop().time() < until:
            await one_more_ends(owner)

        assert garbage() is not None


async def test_what_is_put_aside_is_not_left_alone_for_ever() -> None:
    """Where one ends every second of the day, there is no better time."""
    owner = three_are_many(quiet=0.5, longest=0.2)
    async with many_ended(owner) as garbage:
        while garbage() is not None:  # pytest's own limit ends a wait in vain
            await one_more_ends(owner)


async def test_nothing_is_put_aside_any_more_when_few_are_left() -> None:
    """Python collects as it likes."""
    async with alive(three_are_many(), 5):
        assert gc.get_freeze_count() > 0

    await taken_back()

    assert gc.get_freeze_count() == 0


async def test_what_is_there_is_put_aside_for_a_watcher_at_once() -> None:
    """Its first listing makes objects by the ten thousand; what comes later is collected as ever."""
    owner = three_are_many()
    before = Cycle()

    with owner.watcher():
        later = Cycle()
        looked_at = {id(each) for each in gc.get_objects()}
        assert (id(before) in looked_at, id(later) in looked_at) == (False, True)
        with owner.watcher():
            pass
        assert gc.get_freeze_count() > 0

    assert gc.get_freeze_count() == 0


async def test_a_watcher_that_comes_and_goes_beside_another_puts_nothing_more_aside() -> None:
    """Such as one that fails again and again: what it leaves behind is found."""
    owner = three_are_many()
    with owner.watcher():
        cycle = Cycle()
        garbage = weakref.ref(cycle)
        with owner.watcher():
            del cycle
        gc.collect()

        assert garbage() is None


async def test_what_watchers_had_put_aside_is_put_aside_again_when_many_triggers_have_ended() -> None:
    """What they leave behind is found once, and the watcher goes on as before."""
    owner = three_are_many()
    with owner.watcher():
        async with many_ended(owner) as garbage:
            pass
        await taken_back(garbage)
        assert gc.get_freeze_count() > 0

    assert gc.get_freeze_count() == 0


async def test_a_watchers_end_leaves_aside_what_many_triggers_have_put_there() -> None:
    """They still wait."""
    owner = three_are_many()
    async with alive(owner, 3):
        with owner.watcher():
            pass

        assert gc.get_freeze_count() > 0


async def test_a_watcher_of_data_has_put_aside_what_was_there(tmp_path: Path) -> None:
    """As Airflow runs it, over its shared streams; and by itself."""
    drop(tmp_path, "one")
    counts = [gc.get_freeze_count()]
    async with Triggerer(watcher(tmp_path), StandInStore()).running() as triggerer:
        await triggerer.until(1)
        counts.append(gc.get_freeze_count())
    counts.append(gc.get_freeze_count())
    alone = watcher(tmp_path).run()
    await anext(alone)
    counts.append(gc.get_freeze_count())
    await alone.aclose()
    counts.append(gc.get_freeze_count())

    assert [count > 0 for count in counts] == [False, True, False, True, False]


async def test_triggers_that_wait_are_put_aside(backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of an event loop share one collector."""
    show(backend)
    shared = three_are_many()
    monkeypatch.setattr(collector.collectors, "get", lambda: shared)

    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(running(trigger()))
        await asyncio.sleep(CALM)
        aside = gc.get_freeze_count()
    await taken_back()

    assert aside > 0
