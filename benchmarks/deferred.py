"""Writes task instances into Airflow's database, each deferred to a trigger of ours; run with a stack's environment.

Standard input has the submissions as one JSON list. Each gets its own run, so that the scheduler has no run with
thousands of task instances.
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
    """Write them all."""
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
        found = TaskInstance(task, dag_version_id=version.id, run_id=run.run_id, state=TaskInstanceState.DEFERRED)
        found.try_number, found.start_date = 1, now
        found.next_method, found.next_kwargs = "execute_complete", {}
        found.trigger = Trigger.from_object(PyTorchJobTrigger(submission=submission, deferred_at=now.isoformat()))
        session.add(found)


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
