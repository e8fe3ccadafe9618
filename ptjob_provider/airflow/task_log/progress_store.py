"""Store what is known of each followed job in an XCom of its task: few concurrent writes, and none without need.

Each write is a request to Airflow's supervisor, which also manages the triggerer's database rows and reads all logs.
Jobs that wait in a queue have no log yet: ten thousand of them cost no write.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow import supervisor
from ptjob_provider.airflow.masking import with_texts_masked
from ptjob_provider.airflow.task_log.rate_limiter import rate_limiters
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.shared import OnePerLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ptjob_provider.airflow.task_log.rate_limiter import RateLimiter
    from ptjob_provider.airflow.task_log.sink import TaskLog
    from ptjob_provider.core.logs import LogCursor
    from ptjob_provider.core.run.training_state import TrainingState

PROGRESS = "progress"
"""XCom key of the training's progress, and of the log cursor for a trigger that continues in another process."""

SAVE_INTERVAL = 30.0
"""Minimum seconds between two writes of one task's XCom."""

PAUSE = 1.0
"""Seconds between two checks for due writes."""

AT_ONCE = 4
"""Maximum requests in progress; Airflow's supervisor responds one by one, between its other work."""

SPACING = 0.05
"""Seconds between two regular writes."""

LAST_TIMEOUT = 5.0
"""Seconds without progress after which a triggerer's shutdown waits no longer for the last values to be sent."""


class TaskProgress:
    """Progress of one followed job, as a worker or, in a `ContinuedLog`, a trigger stores it.

    Args:
        task_instance: the task.
        uid: the job's uid: what is stored of another job does not apply.
        sink: writes the task's log.
        state: the state of the training and its replicas.
    """

    def __init__(self, task_instance: Any, uid: str, *, sink: TaskLog, state: TrainingState) -> None:
        self.task_instance = task_instance
        self.uid = uid
        self.sink = sink
        self.state = state

    @property
    def cursor(self) -> LogCursor | None:
        """The position of the last line that was written."""
        return self.sink.cursor

    @property
    def version(self) -> tuple[object, ...]:
        """A value that differs once there is more to store."""
        return self.cursor, *self.state.version

    def to_dict(self) -> dict[str, Any]:
        """Return the value of the XCom."""
        return xcom_value(self.uid, self.cursor, self.state.to_dict())

    async def write(self, value: dict[str, Any]) -> None:
        """Write the XCom from a worker."""
        await supervisor.push_xcom(self.task_instance, PROGRESS, value)


class ProgressStore:
    """Writes the progress of an event loop's tasks, each at most every SAVE_INTERVAL and only if it has moved.

    Args:
        rate_limiter: reports when records have left the process: the line of a stored cursor must be in the log.
        clock: monotonic seconds.

    Attributes:
        began: id of the try's task instance and job's uid → the line after which this process began that log; until the
            event is fired.
    """

    def __init__(self, rate_limiter: RateLimiter, clock: Callable[[], float] = time.monotonic) -> None:
        self.began: dict[tuple[Any, str], LogCursor | None] = {}
        self._rate_limiter = rate_limiter
        self._clock = clock
        self._tasks: dict[TaskProgress, tuple[tuple[object, ...], float]] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._task: asyncio.Task[None] | None = None

    def add(self, task: TaskProgress) -> None:
        """Store this progress from now on; its current value counts as stored."""
        self._tasks[task] = (task.version, self._clock())
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._save_until_done(), context=contextvars.Context())

    def drop(self, task: TaskProgress) -> None:
        """Stop storing this progress; its last value may still be in transit."""
        self._tasks.pop(task, None)

    async def load(self, task: TaskProgress) -> dict[str, Any] | None:
        """Return what an earlier run of this task stored about this job; None if there was none.

        Raises:
            Exception: Airflow did not respond.
        """
        async with self._at_once:
            return of_job(await supervisor.get_xcom(task.task_instance, PROGRESS), task.uid)

    async def save(self, task: TaskProgress) -> None:
        """Write the progress at once; ignore a failed write."""
        await self._save(task, task.to_dict())

    async def save_last(self, task: TaskProgress) -> None:
        """Write the progress of a log that this process has stopped writing, without reading Airflow's response."""
        if not await self._rate_limiter.drain(LAST_TIMEOUT):
            return
        writing = asyncio.create_task(self._write(task, task.to_dict()))
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # Airflow before 3.2 sends a request in a task of its own, one step later
            await self._rate_limiter.drain(LAST_TIMEOUT)
        finally:
            writing.cancel()

    async def _save_until_done(self) -> None:
        while self._tasks:
            await asyncio.sleep(PAUSE)
            await self._save_moved()

    async def _save_moved(self) -> None:
        then = self._clock() - SAVE_INTERVAL
        moved = [
            (task, task.version, task.to_dict())
            for task, (version, saved_at) in self._tasks.items()
            if saved_at <= then and task.version != version
        ]
        if not moved or not await self._rate_limiter.drain(supervisor.TRIGGER_PATIENCE):
            return
        for task, version, value in moved:
            if task in self._tasks:
                self._tasks[task] = (version, self._clock())
                await self._save(task, value)
                await asyncio.sleep(SPACING)

    async def _save(self, task: TaskProgress, value: dict[str, Any]) -> None:
        async with self._at_once:
            await self._write(task, value)

    async def _write(self, task: TaskProgress, value: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # what is not stored costs repeated lines, not the job
            await task.write(value)


def xcom_value(uid: str, cursor: LogCursor | None, progress: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of the XCom; the texts of programs are masked."""
    fields = {**progress, "uid": uid, "cursor": cursor.to_dict() if cursor else None}
    return dict(outgoing(with_texts_masked(fields)))


def stored_in(task_instance: Any, uid: str) -> dict[str, Any] | None:
    """Return what the task's trigger stored about this job, in a worker; None if there is nothing."""
    return of_job(task_instance.xcom_pull(key=PROGRESS, map_indexes=task_instance.map_index), uid)


def of_job(stored: dict[str, Any] | None, uid: str) -> dict[str, Any] | None:
    """Return the stored value if it is of this job; an earlier try may have left that of another one."""
    return stored if stored and stored.get("uid") == uid else None


progress_stores = OnePerLoop(lambda: ProgressStore(rate_limiters.get()))
"""One store per event loop."""
