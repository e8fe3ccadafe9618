"""Running a watcher of an asset as a triggerer does: with Airflow's own runner; the test plays the database."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from airflow.jobs.triggerer_job_runner import TriggerRunner

from airflow_adapter.triggerer import SOON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow.triggers.base import BaseEventTrigger

ID = 7


class StandInState:
    """What Airflow injects to keep the state of the one asset `incoming` with."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._by_name = {"incoming": self}

    def __getitem__(self, asset: Any) -> StandInState:
        return self._by_name[asset.name]

    async def aget(self, key: str) -> Any:
        """Return what was set."""
        return self.values.get(key)

    async def aset(self, key: str, value: Any) -> None:
        """Keep it."""
        self.values[key] = value


@asynccontextmanager
async def running(trigger: BaseEventTrigger) -> AsyncIterator[TriggerRunner]:
    """Run the trigger as a triggerer does."""
    runner = TriggerRunner()
    runner.triggers[ID] = {"task": None, "is_watcher": True, "name": "counting", "events": 0}  # type: ignore[typeddict-item]
    task = asyncio.create_task(runner.run_trigger(ID, trigger))
    try:
        yield runner
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def fired(runner: TriggerRunner, count: int) -> list[Any]:
    """Return the first events that are on their way to the database."""
    async with asyncio.timeout(SOON):
        while len(runner.events) < count:  # noqa: ASYNC110 - the runner tells nobody
            await asyncio.sleep(0.01)
    return [runner.events.popleft() for _ in range(count)]


def confirm(runner: TriggerRunner, events: list[Any]) -> None:
    """Say that they are in the database."""
    runner._shared_streams.confirm_persisted([each.persist_seq for each in events])
