"""Tests of the rest of the log that a resumed task adds: all lines that no trigger has written, and marked repeats."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_adapter.stand_ins import ListLogger, StandInTaskInstance, job_object
from airflow_adapter.stand_ins import log_line as line
from fakes import ScriptedBackend
from ptjob_provider.airflow.outcome import JobEvent
from ptjob_provider.airflow.task_log import add_rest_of_log
from ptjob_provider.airflow.task_log.progress_store import PROGRESS
from ptjob_provider.core.run.submit import Submission


async def added(kept: dict[str, Any] | None = None, **event: Any) -> list[str]:
    """Return the lines that are added for a job that wrote three lines."""
    backend, logger, task_instance = ScriptedBackend(), ListLogger(), StandInTaskInstance()
    backend.lines = [line(1), line(2), line(3)]
    if kept is not None:
        task_instance.pushed[PROGRESS] = kept
    received = JobEvent(submission=Submission.of(job_object()), **event)
    await add_rest_of_log(backend, received, task_instance=task_instance, logger=logger)
    return logger.text.split("\n") if logger.records else []


async def test_lines_up_to_the_cursor_of_the_event_are_not_added() -> None:
    """The event's cursor wins over the stored one."""
    kept = {"uid": "u-1", "cursor": line(1).cursor.to_dict()}

    assert await added(kept, cursor=line(2).cursor, knows_place=True) == ["line 3"]


async def test_a_trigger_that_has_read_no_line_leaves_all_of_them() -> None:
    """The event says that the position is known."""
    assert await added(knows_place=True) == ["line 1", "line 2", "line 3"]


async def test_after_a_killed_trigger_whose_heir_knew_nothing_repeats_are_marked() -> None:
    """The killed trigger may have written more lines than its stored cursor covers."""
    kept = {"uid": "u-1", "cursor": line(1).cursor.to_dict()}

    mark, *lines = await added(kept)

    assert mark == "── lines since 2026-11-20T10:00:01Z may be repeated: another process wrote this log before ──"
    assert lines == ["line 2", "line 3"]


@pytest.mark.parametrize("kept", [None, {"uid": "u-0", "cursor": line(2).cursor.to_dict()}])
async def test_without_a_place_the_log_is_read_from_its_beginning(kept: dict[str, Any] | None) -> None:
    """The cursor of another job is ignored."""
    assert await added(kept) == ["line 1", "line 2", "line 3"]
