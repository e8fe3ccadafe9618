"""Tests of the phases and timestamps of a job."""

from __future__ import annotations

from datetime import UTC, datetime

from ptjob_provider.core.status import JobPhase, parse_instant


def test_only_success_and_failure_are_the_end() -> None:
    """A suspended job may run again."""
    assert {phase for phase in JobPhase if phase.is_terminal} == {JobPhase.SUCCEEDED, JobPhase.FAILED}


def test_an_instant_is_read_as_the_api_server_writes_it() -> None:
    assert parse_instant("2026-11-20T10:00:00Z") == datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
    assert parse_instant(None) is None
    assert parse_instant("") is None
    assert parse_instant("0001-01-01T00:00:00+14:00") is None, "it is before the first year in UTC"
