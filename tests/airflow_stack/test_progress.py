"""Tests of a training's progress in Airflow's database: while its job runs, and after a retry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_stack.conftest import WAITS
from airflow_stack.test_failures import supervisor_of
from task_run import until

if TYPE_CHECKING:
    from airflow_stack.conftest import Lab


@pytest.mark.parametrize("mode", WAITS)
def test_progress_is_read_while_a_job_runs_and_after_a_retry(lab: Lab, mode: str) -> None:
    """A new try deletes the XComs of the earlier one; how that ended is told again."""
    task = lab.start(f"{mode}_1", "resume", "never", checkpoints=f"pvc://runs/progress-{mode}")
    until(lambda: (task.xcom("progress") or {}).get("step") == 2, what="the third step in the database")
    meanwhile, state, ref = task.xcom("progress"), task.state, task.ref

    supervisor_of(ref.name).kill()
    assert task.wait() == "success"

    told = task.xcom("progress")
    assert (state, meanwhile["phase"], meanwhile["first_step"]) == (WAITS[mode], "Running", 0)
    assert meanwhile["cursor"]["ordinal"] >= 0
    assert (told["attempt"], told["phase"], told["first_step"], told["step"]) == (2, "Succeeded", 3, 5)
    [first] = told["attempts"]
    assert (first["attempt"], first["job"], first["cause"]) == (1, str(ref), "supervisor_lost")
    assert (first["first_step"], first["last_step"]) == (0, 2)
