"""Writes task instances into Airflow's database, each deferred to a `PyTorchJobTrigger`.

This program runs with the environment of a `Stack`, and reads the submissions from standard input as one JSON list.
Each task instance gets its own DAG run, so that the scheduler has no run with thousands of task instances.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.models.dag_version import DagVersion
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType

from ptjob_provider.airflow.triggers import PyTorchJobTrigger

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

DAG_ID, TASK_ID = "waiting", "train"
BATCH = 500


def write(submissions: list[dict[str, Any]]) -> None:
    """Write a deferred task instance for each submission."""
    for start in range(0, len(submissions), BATCH):
        with create_session() as session:
            _write_batch(session, submissions[start : start + BATCH])


def _write_batch(session: Session, submissions: list[dict[str, Any]]) -> None:
    version = DagVersion.get_latest_version(DAG_ID, session=session)
    dag = DBDagBag().get_latest_version_of_dag(DAG_ID, session=session)
    assert version is not None
    assert dag is not None
    task = dag.get_task(TASK_ID)
    now = datetime.now(UTC)
    runs = [_run(submission["ref"]["name"], now) for submission in submissions]
    for run in runs:
        run.created_dag_version_id = version.id
    session.add_all(runs)
    session.flush()
    for run, submission in zip(runs, submissions, strict=True):
        instance = TaskInstance(task, dag_version_id=version.id, run_id=run.run_id, state=TaskInstanceState.DEFERRED)
        instance.try_number, instance.start_date = 1, now
        instance.next_method, instance.next_kwargs = "execute_complete", {}
        instance.trigger = Trigger.from_object(PyTorchJobTrigger(submission=submission, deferred_at=now.isoformat()))
        session.add(instance)


def _run(run_id: str, now: datetime) -> DagRun:
    return DagRun(
        DAG_ID,
        run_id,
        run_after=now,
        start_date=now,
        state=DagRunState.RUNNING,
        run_type=DagRunType.MANUAL,
        triggered_by=DagRunTriggeredByType.TEST,
    )


if __name__ == "__main__":
    write(json.load(sys.stdin))
