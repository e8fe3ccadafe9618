"""Run a watcher as a triggerer does: with Airflow's own runner and a fake asset state store."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from airflow.jobs.triggerer_job_runner import TriggerRunner
from airflow.sdk.definitions.asset import AssetNameRef

from airflow_adapter.stand_ins import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ptjob_provider.retraining.triggers import ArrivalTrigger

INCOMING = AssetNameRef("incoming")
ID = 7


class StandInStore:
    """A fake asset state store in memory, with the methods of Airflow's accessor."""

    def __init__(self, *names: str) -> None:
        self._by_name = {name: StandInAccessor() for name in names or ("incoming",)}

    def __getitem__(self, asset: AssetNameRef) -> StandInAccessor:
        return self._by_name[asset.name]


class StandInAccessor:
    """The stored values of one asset."""

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
    """Run one watcher with Airflow's own runner; this class is the supervisor and stores its events, or does not."""

    def __init__(self, trigger: ArrivalTrigger, store: StandInStore | None, *, stores_events: bool = True) -> None:
        self.trigger = trigger
        trigger.asset_state_store = store  # type: ignore[assignment]
        self.events: list[dict[str, Any]] = []
        self._stores_events = stores_events
        self._runner = TriggerRunner()
        self._runner.triggers[ID] = {"task": None, "is_watcher": True, "name": "watcher", "events": 0}  # type: ignore[typeddict-item]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Triggerer]:
        """Run the watcher; it is killed at the end."""
        tasks = [asyncio.create_task(each) for each in (self._runner.run_trigger(ID, self.trigger), self._supervise())]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._runner._shared_streams.stop_all()

    async def until(self, count: int) -> list[str]:
        """Wait until this many batches are announced and return their ids."""
        await until(lambda: len(self.ids) >= count)
        return self.ids

    @property
    def ids(self) -> list[str]:
        """The ids of all announced batches, in order."""
        return [batch["id"] for event in self.events for batch in event["batches"]]

    @property
    def names(self) -> list[str]:
        """The names of all announced batches."""
        return [text.rpartition("@")[0] for text in self.ids]

    async def _supervise(self) -> None:
        while True:
            while self._runner.events:
                entry = self._runner.events.popleft()
                self.events.append(entry.event.payload)
                if self._stores_events and entry.persist_seq is not None:
                    self._runner._shared_streams.confirm_persisted([entry.persist_seq])
            await asyncio.sleep(0.05)
