"""Continue the log of one task where an earlier process stopped, and store the position for a later one.

A trigger runs again in another process when its triggerer stops, dies or freezes. Nothing is requested or stored before
rank 0 has begun to write: a job that waits in a queue has no log cursor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow import supervisor
from ptjob_provider.airflow.task_log.progress_store import PROGRESS, TaskProgress, progress_stores, stored_in
from ptjob_provider.airflow.task_log.sink import TaskLog
from ptjob_provider.core.logs import LogCursor, nanoseconds
from ptjob_provider.core.run.rank0_log import catch_up

if TYPE_CHECKING:
    from ptjob_provider.airflow.outcome import JobEvent
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.run.training_state import TrainingState

_ANOTHER = "another process wrote this log before"


class ContinuedLog(TaskProgress):
    """A task's log that a trigger writes, and continues after an earlier run.

    Args:
        task_instance, uid, state: see `TaskProgress`.
        logger: the task's logger.

    Attributes:
        has_begun: whether `cursor` is known: it was read from an earlier run, or there was no earlier run.
    """

    def __init__(self, task_instance: Any, uid: str, *, logger: Any, state: TrainingState) -> None:
        super().__init__(task_instance, uid, sink=TaskLog(logger), state=state)
        self._store = progress_stores.get()
        self.has_begun = False

    async def begin(self) -> LogCursor | None:
        """Register this run, and return the line to continue after; called when rank 0 has a log to read.

        A triggerer that gets a trigger back, as after two of them were frozen in turn, goes back to where it began
        before: Airflow truncates that triggerer's part of the log (3.3.2).
        """
        try:
            stored = await self._store.load(self) or {}
            cursor, why_repeated = _cursor(stored), _ANOTHER if "cursor" in stored else ""
            self.state.resume(stored, cursor)
        except Exception as error:  # noqa: BLE001 - without a response, the log is written from its beginning
            cursor, why_repeated = None, f"Airflow did not say what is written already ({type(error).__name__})"
        began = self._store.began
        cursor = began[self._key] = min(cursor, began.get(self._key, cursor), key=_place)
        self.sink.continue_after(cursor, why_repeated=why_repeated)
        self.has_begun = True
        self._store.add(self)
        await self._store.save(self)
        return cursor

    async def write(self, value: dict[str, Any]) -> None:
        """Write the XCom from a trigger."""
        await supervisor.set_xcom(self.task_instance, PROGRESS, value)

    def end(self) -> None:
        """Stop storing the progress: the event will carry it."""
        self._store.drop(self)

    def fired(self) -> None:
        """Forget the log: the event carries its cursor."""
        self._store.began.pop(self._key, None)

    async def leave(self) -> None:
        """End without an event: store the progress for a later run, which reads pending lines again."""
        if self.has_begun:
            await self._store.save_last(self)

    @property
    def _key(self) -> tuple[Any, str]:
        return getattr(self.task_instance, "id", None), self.uid  # `dag.test` runs triggers without a task instance


def _place(cursor: LogCursor | None) -> tuple[int, int]:
    return (nanoseconds(cursor.timestamp), cursor.ordinal) if cursor else (-1, -1)


def _cursor(stored: dict[str, Any]) -> LogCursor | None:
    """Return the stored cursor; None if no trigger has begun to write the log, or none has written a line."""
    return LogCursor.from_dict(stored["cursor"]) if stored.get("cursor") else None


async def add_rest_of_log(backend: Backend, event: JobEvent, *, task_instance: Any, logger: Any) -> None:
    """Add the lines after the last confirmed one; a notice says if they may be in the log already."""
    sink = TaskLog(logger)
    cursor = event.cursor
    if not event.knows_place:
        stored = stored_in(task_instance, event.submission.ref.uid) or {}
        cursor = _cursor(stored)
        sink.continue_after(cursor, why_repeated=_ANOTHER if "cursor" in stored else "")
    try:
        await catch_up(backend, event.submission, sink=sink, cursor=cursor)
    finally:
        sink.flush()
