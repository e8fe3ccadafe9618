"""Stop orphaned training jobs: no task waits for them any more.

If a worker is killed during its task's last try, or a task is marked while no triggerer runs, the job continues and
keeps its GPUs, because Airflow has no object in the cluster that could own the job. Every hour, this DAG finds jobs of
this Airflow whose task has ended or is gone, logs each with its owner, and stops it. Data on its claims stays.

Three kinds of jobs are kept: those of other Airflows; those that their task only submitted
(`wait_for_completion=False`); and, for `[ptjob] orphan_grace`, those that the last try of their task could not follow
because the API server refused it, or whose task has no state or is gone, as after a scheduler has reset it or the
database was restored. If the database seems to be a copy of another Airflow's, the task fails without checking any job;
its error says what to do.

To adapt it: set the namespaces of your jobs, check the result of a run with `dry_run`, and unpause it.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task

NAMESPACES = ["default"]

with DAG(
    "ptjob_maintenance",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    doc_md=__doc__,
    params={
        "namespaces": Param(NAMESPACES, type="array", items={"type": "string"}),
        "grace": Param(10, type="integer", minimum=0, description="Minutes; younger jobs are left alone."),
        "dry_run": Param(default=False, type="boolean", description="Only say what is found."),
    },
) as dag:

    @task
    def stop_orphans() -> list[dict[str, Any]]:
        """Stop orphaned jobs, and list them in the task's log and its XCom."""
        from ptjob_provider.airflow import maintenance  # noqa: PLC0415 - not needed while the file is parsed

        params = get_current_context()["params"]
        return maintenance.stop_orphans(
            namespaces=params["namespaces"], grace=timedelta(minutes=params["grace"]), dry_run=params["dry_run"]
        )

    stop_orphans()

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
