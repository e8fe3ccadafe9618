"""What outlives tries, workers and clears of one task instance, in Airflow's `task_state_store`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.execution_time.context import NEVER_EXPIRE

from ptjob_provider.core.attempts import AttemptRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = "ptjob_attempt"
_RESULT_KEY = "ptjob_result"


class TaskStateAttemptStore:
    """An `AttemptStore` of one task instance; its tries and its clears share it."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        self._store = context["task_state_store"]

    def load(self) -> AttemptRecord | None:
        """Return what the last try saved; None if there was none."""
        found = self._store.get(_KEY)
        return AttemptRecord.from_dict(found) if found else None

    def save(self, record: AttemptRecord) -> None:
        """Keep the record as long as the task instance."""
        self._store.set(_KEY, record.to_dict(), retention=NEVER_EXPIRE)

    def load_result(self, clear_number: int) -> dict[str, Any] | None:
        """Return the result that an earlier try saved; None if there is none, or the task was cleared since."""
        found = self._store.get(_RESULT_KEY) or {}
        return found["result"] if found.get("clear_number") == clear_number else None

    def save_result(self, result: Mapping[str, Any], clear_number: int) -> None:
        """Keep the result of a job that is about to be deleted: a try that follows must not train again for it."""
        kept = {"clear_number": clear_number, "result": dict(result)}
        self._store.set(_RESULT_KEY, kept, retention=NEVER_EXPIRE)
