"""Writes rank 0's lines to the task's log, and stores progress and log cursor for people and for the next process.

`sink` takes lines, and `rate_limiter` shares the capacity of Airflow's logger among all jobs of an event loop.
`progress_store` and `continued` let a trigger continue in another process, and add the lines that no trigger has
written.
"""

from ptjob_provider.airflow.task_log.continued import ContinuedLog, add_rest_of_log
from ptjob_provider.airflow.task_log.rate_limiter import rate_limiters
from ptjob_provider.airflow.task_log.sink import CONTINUES, TaskLog

__all__ = ["CONTINUES", "ContinuedLog", "TaskLog", "add_rest_of_log", "rate_limiters"]
