"""Tests of the order of events in `ptjob events`. Back-end and inspector are scripted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ScriptedBackend
from ptjob_provider.cli import tables
from recorded import recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.testing import Result

    from ptjob_provider.core.identity import JobRef, Manifest


class ScriptedSite:
    """Returns the events of a test's script."""

    def __init__(self, *found: Manifest) -> None:
        self.found = found

    async def events(self, _ref: JobRef, _pods: Sequence[str]) -> Sequence[Manifest]:
        return self.found


def event(reason: str, **when: Any) -> Manifest:
    """Return an event with its times."""
    return {"metadata": {}, "involvedObject": {"kind": "Pod", "name": "digits-master-0"}, "reason": reason, **when}


@pytest.fixture
def rows_of(ptjob: Callable[..., Result]) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that returns the JSON rows of `ptjob events`."""

    def rows(*found: Manifest) -> list[dict[str, Any]]:
        job = recorded("pytorchjob-created")
        backend, meta = ScriptedBackend(), job["metadata"]
        backend.jobs[meta["namespace"], meta["name"]] = job
        words = ("events", meta["name"], "-n", meta["namespace"], "-o", "json")
        printed: list[dict[str, Any]] = json.loads(ptjob(backend, *words, inspector=ScriptedSite(*found)).stdout)
        return printed

    return rows


def test_events_are_shown_in_the_order_of_the_time_beside_them(rows_of: Callable[..., list[dict[str, Any]]]) -> None:
    """The scheduler writes microseconds, others whole seconds; within a second, the server's order stays."""
    rows = rows_of(
        event("Scheduled", eventTime="2026-11-20T10:00:01.852900Z"),
        event("SuccessfulCreatePod", lastTimestamp="2026-11-20T10:00:01Z"),
        event("SuccessfulCreateService", lastTimestamp="2026-11-20T10:00:01Z"),
        event("Unknown"),
        event("Started", series={"lastObservedTime": "2026-11-20T10:00:01.9Z"}, eventTime="2026-11-20T09:59:00Z"),
        event("Created", metadata={"creationTimestamp": "2026-11-20T10:00:00Z"}),
    )

    assert [row["reason"] for row in rows] == [
        "Unknown",
        "Created",
        "Scheduled",
        "SuccessfulCreatePod",
        "SuccessfulCreateService",
        "Started",
    ]
    table = tables.events(rows, now=datetime(2026, 11, 20, 10, 1, 41, tzinfo=UTC))
    assert [row[0] for row in table.rows] == ["", "1m41s", "1m39s", "1m40s", "1m40s", "1m39s"]
