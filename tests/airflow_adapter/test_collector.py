"""Thousands of triggers wait without Python's garbage collector looking through them; nothing is kept for that."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from airflow_adapter.test_trigger import running, show, trigger
from ptjob_provider.airflow import collector
from ptjob_provider.airflow.collector import Collector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from fakes import ScriptedBackend

INTERVAL, CALM = 0.02, 0.2


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


def three_are_many() -> Collector:
    return Collector(many=3, interval=INTERVAL, calm=CALM)


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

            assert kept
            assert garbage() is None
            assert gc.get_freeze_count() > 0


async def test_nothing_is_put_aside_any_more_when_few_are_left() -> None:
    """Python collects as it likes."""
    async with alive(three_are_many(), 5):
        pass

    assert gc.get_freeze_count() == 0


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

    assert aside > 0
    assert gc.get_freeze_count() == 0
