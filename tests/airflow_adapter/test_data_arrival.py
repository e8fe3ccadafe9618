"""Tests of the watcher of a directory with Airflow's own shared streams, which confirm events or do not."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from airflow.sdk import Asset, AssetWatcher, ObjectStoragePath
from airflow.sdk.definitions.asset import AssetNameRef

from airflow_adapter.stand_ins import SOON, until
from airflow_adapter.triggerer import INCOMING, StandInStore, Triggerer
from airflow_versions import since
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.retraining import sources, triggers
from ptjob_provider.retraining.batches import Arrivals, BatchRules, Listing, StoredFile, group
from ptjob_provider.retraining.sources import AllStuck, Source, Store, Threads
from ptjob_provider.retraining.triggers import DataArrivalTrigger
from ptjob_provider.retraining.watcher import Then, Watch

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

pytestmark = since(3, 3, "shared streams and a state store of the asset")


POLL = 0.1
"""Seconds between two polls of a watcher with `poll_seconds=1`."""

LOOKS = 6 * POLL
"""Time for several polls in which nothing more is announced."""


def drop(source: Path, name: str, content: str = "data", *, marker: bool = True) -> None:
    """Write a batch as its producer would."""
    (source / name).mkdir(parents=True, exist_ok=True)
    (source / name / "part-0").write_text(content)
    if marker:
        (source / name / "_SUCCESS").touch()


def everything(source: Path) -> list[Path]:
    """Return all paths of the source."""
    return sorted(source.rglob("*"))


def moved(path: Path, name: str) -> Path:
    """Rename a folder and return its new path."""
    return path.rename(path.with_name(name))


def watcher(source: Path, **changes: Any) -> DataArrivalTrigger:
    """Return a watcher built from its JSON, as a triggerer builds it."""
    settings: dict[str, Any] = {"poll_seconds": 1, "settle_seconds": 1, **changes}
    _, kwargs = DataArrivalTrigger(str(source), **settings).serialize()
    return DataArrivalTrigger(**json.loads(json.dumps(kwargs)))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Create an empty source."""
    path = tmp_path / "incoming"
    path.mkdir()
    return path


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Return a function that reads the watcher's log so far; Airflow's log goes to standard output here."""
    parts: list[str] = []

    def read() -> str:
        parts.append(capsys.readouterr().out)
        return "".join(parts)

    return read


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll ten times as often, and confirm after 0.1 s: nothing is being written in between."""

    def often(look: Callable[..., Any], *, poll_seconds: float, **more: Any) -> Watch:
        return Watch(look, poll_seconds=poll_seconds * POLL, **more)

    monkeypatch.setattr(triggers, "Watch", often)
    monkeypatch.setattr("ptjob_provider.retraining.watcher.CONFIRM", 0.1)
    monkeypatch.setattr("ptjob_provider.retraining.troubles.SHORTEST_PAUSE", POLL)


async def test_present_and_later_batches_are_announced_once_each(source: Path) -> None:
    drop(source, "first")
    drop(source, "unfinished", marker=False)
    before = everything(source)

    async with Triggerer(watcher(source), StandInStore()).running() as triggerer:
        await triggerer.until(1)
        assert everything(source) == before
        drop(source, "second", "more data")
        await triggerer.until(2)
        (source / "unfinished" / "_SUCCESS").touch()
        await triggerer.until(3)
        await asyncio.sleep(LOOKS)

    assert triggerer.names == ["first", "second", "unfinished"]
    second = triggerer.events[1]
    assert second["source"] == f"file://{source}"
    assert second["version"] == second["batches"][0]["id"]
    assert second["batches"][0]["uri"] == f"file://{source}/second"
    assert (second["files"], second["bytes"]) == (1, 9)


async def test_an_event_that_airflow_has_not_stored_comes_again_after_a_crash_with_the_same_id(source: Path) -> None:
    """The watermark is written only after the event is in the database: a crash can repeat an event but not lose it."""
    store = StandInStore()
    drop(source, "one")
    async with Triggerer(watcher(source), store, stores_events=False).running() as first:
        await first.until(1)
        await asyncio.sleep(LOOKS)
        assert first.names == ["one"]
    assert not store[INCOMING].writes

    async with Triggerer(watcher(source), store).running() as second:
        await second.until(1)

    assert second.ids == first.ids


async def test_a_trigger_that_is_stopped_before_its_event_is_queued_has_not_announced_it(source: Path) -> None:
    """Airflow logs an event before it queues it and may stop the trigger in between, which ends the look."""
    store = StandInStore()
    drop(source, "one")
    first = Triggerer(watcher(source), store)
    at_the_log = asyncio.Event()

    class HangingLog:
        async def ainfo(self, what: str, **_: Any) -> None:
            if what == "Trigger fired event":
                at_the_log.set()
                await asyncio.Event().wait()

        def __getattr__(self, name: str) -> Any:
            return lambda *_args, **_kwargs: None

    first._runner.log = HangingLog()  # type: ignore[assignment]
    async with first.running():
        async with asyncio.timeout(SOON):
            await at_the_log.wait()
    assert first.events == []
    assert not store[INCOMING].writes

    async with Triggerer(watcher(source), store).running() as second:
        await second.until(1)

    assert second.names == ["one"]


async def test_many_batches_come_in_portions_over_one_listing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next portion follows after Airflow has stored the previous one; a kill repeats one portion at most."""
    monkeypatch.setitem(triggers.PORTION, "each", 10)
    for number in range(35):
        drop(source, f"b{number:02d}")
    store = StandInStore()

    async with Triggerer(watcher(source, poll_seconds=600), store).running() as triggerer:
        await triggerer.until(35)
        assert len(store[INCOMING].writes) >= 4  # a page and a head, then the page again

    assert triggerer.names == [f"b{number:02d}" for number in range(35)]


async def test_two_assets_with_the_same_watcher_both_have_its_watermark(source: Path) -> None:
    """Airflow creates one trigger for both; an asset that is added later gets all batches."""
    drop(source, "one")
    both = StandInStore("first", "second")
    async with Triggerer(watcher(source), both).running() as triggerer:
        await triggerer.until(1)
        await until(lambda: bool(both[AssetNameRef("second")].writes))
    assert both[AssetNameRef("first")].values == both[AssetNameRef("second")].values
    later = StandInStore("first", "third")
    later._by_name["first"] = both[AssetNameRef("first")]

    async with Triggerer(watcher(source), later).running() as again:
        assert await again.until(1) == triggerer.ids


async def test_a_path_that_goes_away_is_said_once_and_what_came_meanwhile_is_announced(
    source: Path, said: Callable[[], str]
) -> None:
    """As a mount does. The log also reports when the path is back."""
    drop(source, "one")
    async with Triggerer(watcher(source), StandInStore()).running() as triggerer:
        await triggerer.until(1)
        away = moved(source, "away")
        await until(lambda: "it cannot be listed" in said())
        drop(away, "two")
        moved(away, source.name)
        await triggerer.until(2)

    assert triggerer.names == ["one", "two"]
    assert said().count("it cannot be listed (FileNotFoundError") == 1
    assert said().count("can be listed again") == 1


def to_itself(batch: Path) -> None:
    (batch / "again").symlink_to(".")


def to_each_other(batch: Path) -> None:
    (batch / "one").symlink_to("other")
    (batch / "other").symlink_to("one")


def crowded(batch: Path) -> None:
    for number in range(2000):
        (batch / f"{number}").touch()


def slow(batch: Path) -> None:
    (batch / "slow").touch()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (to_itself, "more than 32 folders deep"),
        (to_each_other, "Too many levels of symbolic links"),
        (crowded, "more than 2,000 files and folders"),
        (slow, "longer than 60 s"),
    ],
)
def test_a_batch_that_cannot_be_listed_is_odd_and_the_others_are_listed(
    make: Callable[[Path], None], why: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who can write to a source must not be able to block other batches."""
    for name in ("a", "b", "c"):
        drop(source, name)
    make(source / "b")
    monkeypatch.setattr(sources, "MOST_ENTRIES", 2000)
    if make is slow:
        clock = iter(range(0, 10**6, 20))
        monkeypatch.setattr(sources, "_now", lambda: next(clock))

    found = Store(Source(address=str(source)), BatchRules()).look()

    assert list(found.oddities) == ["b"]
    assert why in found.oddities["b"]
    assert [(batch.name, batch.files) for batch in found.batches if batch.name != "b"] == [("a", 1), ("c", 1)]
    assert found.files < 2010


@pytest.mark.parametrize("seconds", [10**15, -(10**15)])
def test_a_file_with_a_time_outside_of_the_calendar_has_no_time(source: Path, seconds: int) -> None:
    """The writer chooses the time; dates have a range."""
    drop(source, "b")
    stat = (source / "b" / "part-0").stat()

    parts = {"st_size": 1, "st_mtime": seconds, "st_mtime_ns": seconds * 10**9}
    odd = sources._local_file("b/part-0", cast("os.stat_result", SimpleNamespace(**parts)))

    assert (odd.modified, odd.mark) == ("", str(seconds * 10**9))
    assert sources._local_file("b/part-0", stat).modified.startswith("20")


async def test_nothing_is_announced_while_the_watermark_cannot_be_read(source: Path, said: Callable[[], str]) -> None:
    """They would be announced twice. A failed write is logged and repeated later."""
    drop(source, "one")
    store = StandInStore()
    values = store[INCOMING]
    values.is_away = True

    async with Triggerer(watcher(source), store).running() as triggerer:
        await until(lambda: "cannot be read from Airflow" in said())
        await asyncio.sleep(LOOKS)
        assert triggerer.events == []
        assert said().count("cannot be read from Airflow") == 1
        values.is_away = False
        await triggerer.until(1)
        values.is_away = True
        drop(source, "two")
        await triggerer.until(2)
        await until(lambda: "cannot be written to Airflow" in said())
        values.is_away = False
        await until(lambda: said().count("answers again") == 2)

    async with Triggerer(watcher(source), store).running() as later:
        await asyncio.sleep(LOOKS)
    assert later.events == []
    assert triggerer.names == ["one", "two"]


async def test_a_watcher_without_confirmations_counts_an_event_as_taken_at_the_next_request(source: Path) -> None:
    """As in `dag.test()`: an event counts as taken when the next one is requested."""
    drop(source, "one")
    drop(source, "two")

    events = watcher(source).run()
    found = [(await anext(events)).payload["batches"][0]["uri"] for _ in range(2)]

    assert found == [f"file://{source}/one", f"file://{source}/two"]
    await events.aclose()


async def test_a_source_where_something_comes_all_the_time_is_listed_twice_for_each_poll() -> None:
    """The bound: at most 120 looks an hour at the default of 60 s, and two polls until a batch is announced."""
    clock, arrivals = [0.0], Arrivals(BatchRules(), settle_seconds=60.0)
    announced: dict[str, float] = {}

    async def look() -> Listing:
        there = [f"b{second:04d}" for second in range(int(clock[0]) + 1)]
        files = [StoredFile(f"{name}/{part}", 1, "1") for name in there for part in ("part-0", "_SUCCESS")]
        return group(files, BatchRules(), began=clock[0])

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    looks = 0
    watch = Watch(look, source="/in", poll_seconds=60.0, log=None, sleep=sleep)
    async for seen in watch.looks():
        looks += 1
        ready = arrivals.ready(seen.listing)
        announced.update((batch.name, clock[0]) for batch in ready)
        arrivals.take(ready)
        seen.then = Then.CONFIRM if arrivals.needs_confirmation(seen.listing) else Then.POLL
        await seen.conclude(is_taken=True)
        if clock[0] >= 600:
            break

    assert 16 <= looks <= 22
    waits = [at - int(name.removeprefix("b")) for name, at in announced.items()]
    assert max(waits) <= 2 * 66 + 2


@pytest.mark.parametrize(("complete_at", "is_told"), [(99, True), (2, False)])
async def test_a_source_that_is_read_wrongly_is_reported_once(
    caplog: pytest.LogCaptureFixture, complete_at: int, *, is_told: bool
) -> None:
    """Not at once: the first batch may be on its way. Not after a batch: then the arguments are right."""
    looks = 0

    async def look() -> Listing:
        marks = ["day/_SUCCESS"] if looks == complete_at else []
        return group([StoredFile(name, 1, "1") for name in ("day/x", *marks)], BatchRules(), began=0.0)

    async def sleep(_: float) -> None:
        pass

    watch = Watch(look, source="/in", poll_seconds=60.0, log=logging.getLogger("watch"), sleep=sleep)
    async for seen in watch.looks():
        looks += 1
        await seen.conclude(is_taken=True)
        if looks == 9:
            break

    assert [("marker=None" in message) for message in caplog.messages] == [True] * is_told


async def test_a_watcher_that_fails_by_itself_begins_anew(
    source: Path, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` raises nothing and starts over; no watermark is stored for the failed look."""
    drop(source, "one")
    monkeypatch.setattr(triggers, "AFTER_A_FAILURE", 0.0)
    store, real = StandInStore(), triggers.payloads
    monkeypatch.setattr(triggers, "payloads", lambda *_args, **_kwargs: 1 / 0)

    async with Triggerer(watcher(source), store).running():
        await until(lambda: "the watcher failed by itself and begins anew" in said())
    alone = watcher(source).run()
    first = asyncio.ensure_future(anext(alone))
    await until(lambda: said().count("the watcher failed by itself and begins anew") >= 2)
    monkeypatch.setattr(triggers, "payloads", real)

    assert not store[INCOMING].writes
    assert (await first).payload["batches"][0]["uri"] == f"file://{source}/one"
    await alone.aclose()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"source": "incoming"}, r"source: 'incoming' is not allowed; allowed: a directory's absolute path, or a URL"),
    ({"source": "http://files/incoming"}, "allowed: .*; a listing over http and https has no times and no etags"),
    ({"source": "file://incoming"}, "source: 'file://incoming' is not allowed"),
    ({"storage_options": {"secret": "s"}}, "'secret' is not allowed; secrets belong in a connection"),
    ({"storage_options": {"client_kwargs": {"aws_session_token": "s"}}}, "'aws_session_token' is not allowed"),
    ({"storage_options": {"connection_string": "AccountKey=s"}}, "'connection_string' is not allowed"),
    ({"source": "sftp://me:secret-word@host/in"}, "source: a password is not allowed"),
    ({"source": "simplecache::sftp:/me:secret-word@host/in"}, "source: a password is not allowed"),
    ({"storage_options": {"when": object()}}, "only JSON values are allowed"),
    ({"batch": "folders"}, "batch: 'folders' is not allowed; allowed: folder, file"),
    ({"pattern": ""}, "pattern: '' is not allowed"),
    ({"marker": "a/b"}, "marker: 'a/b' is not allowed; allowed: the name of a file in the batch's folder, or None"),
    ({"batch": "file", "marker": "done"}, "marker: 'done' is not allowed; a file has no marker, it settles"),
    ({"poll_seconds": 0.5}, "poll_seconds: 0.5 is not allowed; allowed: seconds, 1 or more"),
    ({"events": "all"}, "events: 'all' is not allowed; allowed: each, together"),
]


@pytest.mark.parametrize(("changes", "said"), BAD)
def test_a_wrong_argument_ends_the_parsing_of_its_dag(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        DataArrivalTrigger(**{"source": "/incoming", **changes})


def test_airflow_takes_it_as_a_watcher_and_builds_it_again() -> None:
    from airflow.serialization.encoders import encode_trigger  # noqa: PLC0415 - not before 3.2

    trigger = DataArrivalTrigger("s3://store@bucket/incoming", storage_options={"anon": True}, events="together")
    asset = Asset("incoming", watchers=[AssetWatcher(name="arrivals", trigger=trigger)])

    encoded = encode_trigger(asset.watchers[0].trigger)
    again = DataArrivalTrigger(**trigger.serialize()[1])

    assert encoded["classpath"] == "ptjob_provider.retraining.triggers.DataArrivalTrigger"
    assert again.serialize() == trigger.serialize()
    assert trigger.hash(*trigger.serialize()) == again.hash(*again.serialize())
    assert again.address() == "s3://bucket/incoming"


def test_an_object_storage_path_is_a_source() -> None:
    bucket = DataArrivalTrigger(ObjectStoragePath("s3://bucket/incoming", conn_id="store"))
    directory = DataArrivalTrigger(ObjectStoragePath("file:///incoming"))

    assert (bucket.address(), bucket.conn_id) == ("s3://bucket/incoming", "store")
    assert (directory.address(), directory.conn_id) == ("file:///incoming", None)


async def test_a_call_that_hangs_blocks_no_other_and_the_number_of_such_calls_is_bounded() -> None:
    """Each call has its own thread; beyond the limit no call is started."""
    threads, free = Threads("test", most=2), threading.Event()
    try:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await threads.call(free.wait, within=0.05)
        with pytest.raises(AllStuck, match="2 earlier calls have not returned"):
            await threads.call(free.wait, within=0.05)
        assert await Threads("other").call(lambda: 7, within=SOON) == 7
    finally:
        free.set()
    await until(lambda: not threads._under_way)
    assert await threads.call(lambda: 8, within=SOON) == 8


HANGS = """
import asyncio, threading
from ptjob_provider.retraining.sources import Source, Store
from ptjob_provider.retraining.sources import Threads

async def main():
    asyncio.ensure_future(Threads("hangs").call(threading.Event().wait, within=600))
    await asyncio.sleep(0.2)

asyncio.run(main())
"""


def test_a_process_ends_although_a_call_hangs() -> None:
    """A triggerer must stop at once, also when a store hangs."""
    subprocess.run([sys.executable, "-c", HANGS], check=True, timeout=60)
