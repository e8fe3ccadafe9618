"""Tests of a training's progress in Airflow's database: while its job runs, and after a retry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_stack.conftest import WAITS

if TYPE_CHECKING:
    from airflow_stack.conftest import Retried


@pytest.mark.parametrize("mode", WAITS)
def test_progress_is_read_while_a_job_runs_and_after_a_retry(retried: dict[str, Retried], mode: str) -> None:
    """A new try deletes the XComs of the earlier one; how that ended is told again."""
    first = retried[mode]

    told = first.task.xcom("progress")
    assert (first.state, first.progress["phase"], first.progress["first_step"]) == (WAITS[mode], "Running", 0)
    assert first.progress["cursor"]["ordinal"] >= 0
    assert (told["attempt"], told["phase"], told["first_step"], told["step"]) == (2, "Succeeded", 3, 5)
    [earlier] = told["attempts"]
    assert (earlier["attempt"], earlier["job"], earlier["cause"]) == (1, str(first.ref), "supervisor_lost")
    assert (earlier["first_step"], earlier["last_step"]) == (0, 2)
