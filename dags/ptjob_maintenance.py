"""Stop training jobs for which no task waits any more.

A worker that is killed on its task's last try, or a task that is marked while no triggerer runs, leaves its job behind,
GPUs and all: Airflow has nothing in the cluster that could own the job. This DAG looks every hour for jobs of this
Airflow whose task has ended or is gone, logs each with its owner, and stops it. What a job has written to its claims
stays. Jobs of other Airflows and jobs that their task only submitted (`wait_for_completion=False`) are left alone; for
`[ptjob] orphan_grace`, so are jobs that the API server did not let their task's last try follow. If the database seems
to be a copy of another Airflow's, the task fails and looks at no job; its error says what to do.

To make it yours: name the namespaces in which your jobs run, look at what a run with `dry_run` finds, and unpause it.
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
        """Find and stop; the task's log and its XCom say what."""
        from ptjob_provider.airflow import maintenance  # noqa: PLC0415 - no need of it while the file is parsed

        params = get_current_context()["params"]
        return maintenance.stop_orphans(
            namespaces=params["namespaces"], grace=timedelta(minutes=params["grace"]), dry_run=params["dry_run"]
        )

    stop_orphans()

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
