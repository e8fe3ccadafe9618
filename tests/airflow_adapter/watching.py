"""Runs a watcher as a triggerer does: over Airflow's own shared streams, with a stand-in for its store of values."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.asset import AssetNameRef
from airflow.triggers.shared_stream import SharedStreamManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ptjob_provider.airflow.data_arrival import ArrivalTrigger

SOON = 20.0
INCOMING = AssetNameRef("incoming")


class StandInStore:
    """Airflow's store of assets' values, in memory: what one of its accessors does over the triggerer's socket."""

    def __init__(self, *names: str) -> None:
        self._by_name = {name: StandInAccessor() for name in names or ("incoming",)}

    def __getitem__(self, asset: AssetNameRef) -> StandInAccessor:
        return self._by_name[asset.name]


class StandInAccessor:
    """The values of one asset."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.writes: list[str] = []
        self.is_away = False

    async def aget(self, key: str) -> Any:
        self._answer()
        return self.values.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self._answer()
        json.dumps(value)
        self.writes.append(key)
        self.values[key] = value

    def _answer(self) -> None:
        if self.is_away:
            raise RuntimeError("no answer from the API")


class Triggerer:
    """Runs one watcher over Airflow's own shared streams, and confirms its events as the triggerer does, or not."""

    def __init__(self, trigger: ArrivalTrigger, store: StandInStore | None, *, stores_events: bool = True) -> None:
        self.trigger = trigger
        trigger.asset_state_store = store  # type: ignore[assignment]
        self.events: list[dict[str, Any]] = []
        self._stores_events = stores_events
        self._streams = SharedStreamManager()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Triggerer]:
        """Run it; at the end it is killed."""
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self._streams.stop_all()

    async def until(self, count: int) -> list[str]:
        """Return the ids once that many batches were announced."""
        await until(lambda: len(self.ids) >= count)
        return self.ids

    @property
    def ids(self) -> list[str]:
        """The ids of all batches that were announced, in order."""
        return [batch["id"] for event in self.events for batch in event["batches"]]

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [text.rpartition("@")[0] for text in self.ids]

    async def _run(self) -> None:
        key = self.trigger.shared_stream_key()
        stream = self._streams.subscribe(trigger_id=1, trigger=self.trigger, key=key)
        async for event in self.trigger.filter_shared_stream(stream):
            seq = self._streams.bind_pending_event(trigger_id=1, key=key)
            self.events.append(event.payload)
            if self._stores_events and seq is not None:
                asyncio.get_running_loop().call_later(0.05, self._streams.confirm_persisted, [seq])


async def until(happened: Callable[[], bool]) -> None:
    """Return once it has."""
    async with asyncio.timeout(SOON):
        while not happened():  # noqa: ASYNC110 - what is waited for knows no events
            await asyncio.sleep(0.02)
