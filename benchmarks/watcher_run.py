"""Runs one watcher in one event loop for `benchmarks.watcher`, and prints its cost as JSON.

The alternatives to `DataArrivalTrigger` are a loop over fsspec's `find` in a thread, Airflow's FileTrigger, and a
stand-in for the amazon provider's S3 triggers, which lists a bucket on the event loop as they do.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.triggers.file import FileTrigger

from airflow_adapter.triggerer import INCOMING, StandInStore
from benchmarks import meter
from ptjob_provider.retraining import sources
from ptjob_provider.retraining.triggers import DataArrivalTrigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

TICK = 0.01
IDLE = 3.0


@dataclass
class Cost:
    """Cost of one watcher.

    Attributes:
        first: seconds until the first listing.
        announced: seconds until all existing batches were announced; nan for watchers that announce nothing.
        first_cpu: CPU seconds until then.
        first_lag: the loop's worst lag until then.
        first_own_lag: the same without runs of Python's garbage collector, which scan the whole process and block
            everything else.
        looks: number of later listings.
        all_looks: number of all listings.
        look_cpu: CPU seconds of each later listing.
        look_lag: the loop's worst lag during the later listings.
        look_own_lag: the same without the garbage collector.
        memory: increase in bytes since before the first listing.
        peak: peak memory in bytes.
        kept: characters of the watermark in Airflow's database.
    """

    first: float = 0.0
    announced: float = 0.0
    first_cpu: float = 0.0
    first_lag: float = 0.0
    first_own_lag: float = 0.0
    looks: int = 0
    all_looks: int = 0
    look_cpu: float = 0.0
    look_lag: float = 0.0
    look_own_lag: float = 0.0
    memory: int = 0
    peak: int = 0
    kept: int = 0


@dataclass
class Collector:
    """Measures the run time of Python's garbage collector, in all threads."""

    ended: float = 0.0
    began: float | None = None

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        """Record the start or the end of a collection."""
        if phase == "start":
            self.began = time.perf_counter()
        else:
            self.ended, self.began = self.seconds, None

    @property
    def seconds(self) -> float:
        """Seconds of all collections until now.

        A collection without a reported end counts, because another thread may run before its end is reported.
        """
        return self.ended + (time.perf_counter() - self.began if self.began is not None else 0.0)


@dataclass
class Lag:
    """Worst delay of a sleep since the last reading: in total, and without the collector."""

    collector: Collector = field(default_factory=Collector)
    worst: float = 0.0
    own: float = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        gc.callbacks.append(self.collector)
        while True:
            began, collected = time.perf_counter(), self.collector.seconds
            await asyncio.sleep(TICK)
            late = time.perf_counter() - began - TICK
            self.worst = max(self.worst, late)
            self.own = max(self.own, late - (self.collector.seconds - collected))

    def read(self) -> tuple[float, float]:
        """Return both values and reset them."""
        values, self.worst, self.own = (self.worst, self.own), 0.0, 0.0
        return values


@dataclass
class Counted:
    """Number of listings, and the time when the first was complete."""

    looks: int = 0
    first_at: float = 0.0
    announced: int = 0
    store: StandInStore = field(default_factory=StandInStore)

    def looked(self) -> None:
        """Count one listing."""
        self.looks += 1
        self.first_at = self.first_at or time.perf_counter()


async def ours(source: str, counted: Counted) -> None:
    """Run our trigger over Airflow's shared streams; each event is confirmed as early as a triggerer could do that."""
    streams = import_module("airflow.triggers.shared_stream").SharedStreamManager()
    kind = "file" if source.endswith("#files") else "folder"
    conn_id = "store" if source.startswith("s3:") else None
    trigger = DataArrivalTrigger(
        source.removesuffix("#files"), conn_id=conn_id, batch=kind, events="together", poll_seconds=1, settle_seconds=1
    )
    trigger.asset_state_store = counted.store  # type: ignore[assignment]
    look = sources.Store.look

    def counting(store: sources.Store) -> Any:
        try:
            return look(store)
        finally:
            counted.looked()

    sources.Store.look = counting  # type: ignore[method-assign]
    key = trigger.shared_stream_key()
    stream = streams.subscribe(trigger_id=1, trigger=trigger, key=key)
    async for event in trigger.filter_shared_stream(stream):
        seq = streams.bind_pending_event(trigger_id=1, key=key)
        json.dumps(event.payload)
        counted.announced += len(event.payload["batches"])
        asyncio.get_running_loop().call_soon(streams.confirm_persisted, [seq])


async def find_in_a_thread(source: str, counted: Counted) -> None:
    """List everything with fsspec, every second, and store the known files in a dict."""
    store = sources.Source(address=source.removesuffix("#files"), conn_id="store" if source.startswith("s3:") else None)
    options = sources._s3_options("store") if source.startswith("s3:") else {}
    files = import_module("fsspec").filesystem(store.scheme or "file", **options)
    known: dict[str, Any] = {}
    while True:
        files.invalidate_cache()
        listed = await asyncio.to_thread(files.find, store.url, detail=True)
        known.update({name: (info["size"], info.get("ETag") or info.get("mtime")) for name, info in listed.items()})
        counted.looked()
        await asyncio.sleep(1)


async def file_trigger(source: str, counted: Counted) -> None:
    """Run Airflow's own FileTrigger for a file that never arrives."""
    trigger = FileTrigger(filepath=f"{source.removesuffix('#files')}/*/_NEVER", poke_interval=1.0)
    real = asyncio.sleep

    async def counting(seconds: float) -> None:
        counted.looked()
        await real(seconds)

    module: Any = import_module("airflow.providers.standard.triggers.file")
    module.asyncio = type("asyncio", (), {"sleep": staticmethod(counting)})
    async for _ in trigger.run():
        raise AssertionError


async def stand_in_for_s3_key_trigger(source: str, counted: Counted) -> None:
    """List the prefix with aiobotocore on the measured event loop and match each key, every second."""
    options = sources._s3_options("store")
    session = import_module("aiobotocore.session").get_session()
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    async with session.create_client(
        "s3",
        aws_access_key_id=options["key"],
        aws_secret_access_key=options["secret"],
        endpoint_url=options["endpoint_url"],
        region_name="us-east-1",
    ) as client:
        while True:
            async for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/"):
                [each for each in page.get("Contents", []) if fnmatch(each["Key"], "*/_NEVER")]
            counted.looked()
            await asyncio.sleep(1)


CONTENDERS: dict[str, Callable[[str, Counted], Any]] = {
    "ours": ours,
    "find": find_in_a_thread,
    "file-trigger": file_trigger,
    "s3-key": stand_in_for_s3_key_trigger,
}


async def measure(name: str, source: str, *, batches: int, looks: int) -> Cost:
    """Run one watcher and return its cost."""
    cost, counted, lag, pid = Cost(), Counted(), Lag(), os.getpid()
    async with running(lag.run()):
        idle = meter.cpu_seconds(pid)
        await asyncio.sleep(IDLE)
        per_second = (meter.cpu_seconds(pid) - idle) / IDLE
        gc.collect()
        await asyncio.sleep(2 * TICK)  # so that the setup's blocking of the loop does not count as the watcher's lag
        lag.read()
        before, began, cpu = meter.memory(pid).pss, time.perf_counter(), meter.cpu_seconds(pid)
        meter.forget_peak(pid)
        resident = meter.memory(pid).rss
        async with running(CONTENDERS[name](source, counted)):
            expected = batches if name == "ours" else 0
            await until(lambda: bool(counted.looks) and counted.announced >= expected)
            cost.first = counted.first_at - began
            cost.announced = time.perf_counter() - began if expected else float("nan")
            cost.first_cpu = meter.cpu_seconds(pid) - cpu - per_second * (time.perf_counter() - began)
            cost.first_lag, cost.first_own_lag = lag.read()
            earlier, cpu, began = counted.looks, meter.cpu_seconds(pid), time.perf_counter()
            await until(lambda: counted.looks >= earlier + looks)
            took = time.perf_counter() - began
            cost.looks, cost.all_looks = counted.looks - earlier, counted.looks
            cost.look_cpu = (meter.cpu_seconds(pid) - cpu - per_second * took) / cost.looks
            cost.look_lag, cost.look_own_lag = lag.read()
            gc.collect()
            after = meter.memory(pid)
            cost.memory, cost.peak = after.pss - before, after.peak - resident
            cost.kept = sum(len(json.dumps(value)) for value in counted.store[INCOMING].values.values())
    return cost


async def until(happened: Callable[[], bool]) -> None:
    """Return once the condition holds."""
    while not happened():  # noqa: ASYNC110 - the condition has no event
        await asyncio.sleep(TICK)


@contextlib.asynccontextmanager
async def running(coroutine: Any) -> AsyncIterator[None]:
    """Run the coroutine inside the block; its exceptions are raised."""
    task = asyncio.ensure_future(coroutine)
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def main() -> None:
    """Measure as the command line says, and print the cost."""
    name, source, batches, looks = sys.argv[1:]
    cost = asyncio.run(measure(name, source, batches=int(batches), looks=int(looks)))
    sys.stdout.write(f"\n{json.dumps(asdict(cost))}\n")


if __name__ == "__main__":
    main()
