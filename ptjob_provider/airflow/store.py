"""The attempt record in Airflow's `task_state_store`: it outlives tries, workers and clears of one task instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.execution_time.context import NEVER_EXPIRE

from ptjob_provider.core.attempts import AttemptRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = "ptjob_attempt"


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
