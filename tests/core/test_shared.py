"""Tests of a shared source: opened once, failures reported to all, closed after the last subscriber has left."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.informer import informer, subscribe
from ptjob_provider.core.kubernetes.informer.cache import JobCache
from ptjob_provider.core.shared import Notifier, open_keys, shared_source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ptjob_provider.core.kubernetes.informer.scope import WatchScope

pytestmark = pytest.mark.skips_waits


class Ticker:
    """A source that a test controls."""

    def __init__(self) -> None:
        self.boxes = [Notifier()]
        self.breaks = asyncio.Event()
        self.has_ended = False

    async def run(self) -> None:
        try:
            await self.breaks.wait()
            raise OSError("the source broke")
        finally:
            self.has_ended = True

    def fail(self, error: BaseException) -> None:
        for box in self.boxes:
            box.fail(error)


async def test_all_subscribers_of_a_key_share_one_source() -> None:
    async with (
        shared_source("a", Ticker, linger=0) as one,
        shared_source("a", Ticker, linger=0) as two,
        shared_source("b", Ticker, linger=0) as other,
    ):
        assert one is two
        assert one is not other
        assert set(open_keys()) == {"a", "b"}


async def test_a_source_ends_with_its_last_subscriber() -> None:
    async with shared_source("a", Ticker, linger=0) as source:
        async with shared_source("a", Ticker, linger=0):
            await asyncio.sleep(0)
        assert not source.has_ended

    await asyncio.sleep(0.1)
    assert source.has_ended
    assert open_keys() == ()
    assert len(asyncio.all_tasks()) == 1


async def test_a_source_is_kept_for_its_time_after_the_last_who_left() -> None:
    """Earlier departures do not shorten that; the next subscriber shares the source, and it ends by itself."""
    async with shared_source("a", Ticker, linger=0.05) as first:
        await asyncio.sleep(0)
    async with shared_source("a", Ticker, linger=60) as second:
        await asyncio.sleep(0.1)  # longer than the first one's time
    await asyncio.sleep(0.1)
    async with shared_source("a", Ticker, linger=0.05) as last:
        assert not first.has_ended
    async with asyncio.timeout(60):
        while not last.has_ended:  # noqa: ASYNC110 - there is no notification
            await asyncio.sleep(0.01)

    assert first is second is last


async def test_a_source_that_breaks_is_an_error_for_all_who_wait_and_opened_anew_by_the_next() -> None:
    async with shared_source("a", Ticker, linger=0) as broken, asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(_error_of(broken.boxes[0])) for _ in range(3)]
        await asyncio.sleep(0)
        broken.breaks.set()

    async with shared_source("a", Ticker, linger=0) as next_one:
        assert next_one is not broken
    assert [str(task.result()) for task in waiting] == ["the source broke"] * 3


async def _error_of(box: Notifier) -> Exception:
    with pytest.raises(OSError, match="broke") as raised:
        await box.until(lambda: False)
    return raised.value


async def test_a_slow_subscriber_sees_the_newest_state_and_delays_no_other() -> None:
    """A thousand changes are one snapshot for a slow subscriber, and nothing is queued for it."""
    box, is_free = Notifier(), asyncio.Event()

    async def look_on(be_busy: Callable[[], Awaitable[object]]) -> int:
        seen = count = 0
        while seen < 1000:
            await box.until(lambda seen=seen: box.version > seen)  # type: ignore[misc]
            seen, count = box.version, count + 1
            await be_busy()
        return count

    async with asyncio.TaskGroup() as tasks:
        looks = [tasks.create_task(look_on(be_busy)) for be_busy in (lambda: asyncio.sleep(0), is_free.wait)]
        await asyncio.sleep(0)
        for _ in range(1000):
            box.notify()
            await asyncio.sleep(0)
        is_free.set()

    quick, slow = (task.result() for task in looks)
    assert quick > 100
    assert slow == 2


async def test_jobs_of_one_name_in_two_namespaces_are_watched_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """One triggerer follows both on one loop, over one connection; each informer watches one namespace."""
    made: list[str] = []

    class StandInBoard:
        def __init__(self, selection: WatchScope) -> None:
            made.append(selection.namespace)

        async def run(self) -> None:
            await asyncio.Event().wait()

        def fail(self, error: BaseException) -> None:
            raise error

        @asynccontextmanager
        async def subscription(self, ref: JobRef) -> AsyncIterator[JobCache]:
            yield JobCache(ref)

    monkeypatch.setattr(informer, "JobInformer", StandInBoard)
    monkeypatch.setattr(informer, "_LINGER", 0.0)
    one, other = (
        JobRef(kind="PyTorchJob", namespace=each, name="digits", uid=f"u-{each}") for each in ("one", "other")
    )

    async with subscribe(ClusterConfig(), one), subscribe(ClusterConfig(), other):
        pass

    assert made == ["one", "other"]
