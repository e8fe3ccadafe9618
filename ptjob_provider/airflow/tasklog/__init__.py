"""Rank 0's lines on their way into the task's log, and how far they have come for whoever goes on after them.

`sink` takes lines, `records` shares what Airflow's logger can take among all jobs of an event loop, `channel` sees
whether records have left the process; `place` and `keeping` let a trigger go on in another process, `pulse` finds out
that it may have; `rest` adds what no trigger has told.
"""

from ptjob_provider.airflow.tasklog.place import PlaceInLog
from ptjob_provider.airflow.tasklog.records import ceilings
from ptjob_provider.airflow.tasklog.rest import add_rest_of_log
from ptjob_provider.airflow.tasklog.sink import CONTINUES, TaskLog

__all__ = ["CONTINUES", "PlaceInLog", "TaskLog", "add_rest_of_log", "ceilings"]
