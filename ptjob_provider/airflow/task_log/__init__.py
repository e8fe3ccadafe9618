"""Writes rank 0's lines to the task's log, and stores the log cursor for the next process.

`sink` takes lines, `records` shares the capacity of Airflow's logger among all jobs of an event loop, `channel` checks
whether records have left the process. `place` and `keeping` let a trigger resume in another process, `pulse` detects
that this may have happened, and `rest` adds the lines that no trigger has written.
"""

from ptjob_provider.airflow.task_log.records import ceilings
from ptjob_provider.airflow.task_log.resume import PlaceInLog, add_rest_of_log
from ptjob_provider.airflow.task_log.sink import CONTINUES, TaskLog

__all__ = ["CONTINUES", "PlaceInLog", "TaskLog", "add_rest_of_log", "ceilings"]
