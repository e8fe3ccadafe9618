"""How long an answer is waited for: the seconds in which this process stands still do not count."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from airflow_adapter.stand_ins import StandInTaskInstance
from ptjob_provider.airflow import asking, awake

if TYPE_CHECKING:
    from airflow_adapter.stand_ins import FakeComms


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones would show nothing more."""
    monkeypatch.setattr(asking, "WORKER_PATIENCE", 0.5)
    monkeypatch.setattr(asking, "TRIGGER_PATIENCE", 0.5)
    monkeypatch.setattr(awake, "STEP", 0.005)


async def test_a_worker_that_was_frozen_waits_for_the_answer_afterwards(comms: FakeComms) -> None:
    """A machine that stands still for seconds answers nobody meanwhile; a job that was to be deleted would be kept."""
    comms.state = None
    asked = asyncio.create_task(asking.state_from_worker(StandInTaskInstance()))
    await asyncio.sleep(0.05)

    time.sleep(0.6)  # noqa: ASYNC251 - the event loop stands still
    comms.state = "failed"
    comms.release.set()

    assert await asked == "failed"


async def test_a_trigger_that_was_frozen_waits_for_the_answer_afterwards(
    comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where the question is asked on the event loop."""
    thawed = asyncio.Event()
    at_once = comms.asend

    async def asend(message: Any) -> Any:
        await thawed.wait()
        return await at_once(message)

    monkeypatch.setattr(comms, "asend", asend)
    comms.state = "failed"
    asked = asyncio.create_task(asking.state_from_trigger(StandInTaskInstance()))
    await asyncio.sleep(0.05)

    time.sleep(0.6)  # noqa: ASYNC251 - the event loop stands still
    asyncio.get_running_loop().call_later(0.05, thawed.set)

    assert await asked == "failed"


async def test_no_answer_is_none(comms: FakeComms) -> None:
    """However often it was looked for."""
    comms.state, comms.hangs = None, True

    assert await asking.state_from_worker(StandInTaskInstance()) is None
    assert await asking.state_from_trigger(StandInTaskInstance()) is None
