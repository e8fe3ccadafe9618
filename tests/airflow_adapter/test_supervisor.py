"""Tests of requests to Airflow for a task's state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_adapter.stand_ins import StandInTaskInstance
from ptjob_provider.airflow import supervisor

if TYPE_CHECKING:
    import pytest

    from airflow_adapter.stand_ins import FakeComms


async def test_a_request_without_an_answer_in_time_returns_none(
    comms: FakeComms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "WORKER_PATIENCE", 0.1)
    monkeypatch.setattr(supervisor, "TRIGGER_PATIENCE", 0.1)
    comms.state, comms.hangs = None, True

    assert await supervisor.state_from_worker(StandInTaskInstance()) is None
    assert await supervisor.state_from_trigger(StandInTaskInstance()) is None
