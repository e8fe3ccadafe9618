"""Adds the lines that no trigger has confirmed, in the task that the event has resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow.tasklog.keeping import CURSOR_KEY
from ptjob_provider.airflow.tasklog.place import start
from ptjob_provider.airflow.tasklog.sink import TaskLog
from ptjob_provider.core.rank0_log import catch_up

if TYPE_CHECKING:
    from ptjob_provider.airflow.event import JobEvent
    from ptjob_provider.core.backend import Backend


async def add_rest_of_log(backend: Backend, told: JobEvent, *, task_instance: Any, logger: Any) -> None:
    """Add the lines after the last confirmed one; a notice says if they may be in the log already."""
    sink = TaskLog(logger)
    cursor = told.cursor
    if not told.knows_place:
        kept = task_instance.xcom_pull(key=CURSOR_KEY, map_indexes=task_instance.map_index)
        cursor, why_repeated = start(kept, told.submission.ref.uid)
        sink.go_on(cursor, why_repeated=why_repeated)
    await catch_up(backend, told.submission, sink=sink, cursor=cursor)
    sink.flush()
