"""Stores the state of one task instance that outlives tries, workers and clears, in Airflow's `task_state_store`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.execution_time.context import NEVER_EXPIRE

from ptjob_provider.core.attempts import AttemptRecord, is_delivered

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = "ptjob_attempt"
_RESULT_KEY = "ptjob_result"


class TaskStateAttemptStore:
    """An `AttemptStore` of one task instance, shared by its tries and clears."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        self._store = context["task_state_store"]
        self._max_tries = context["ti"].max_tries
        self._tries_before_clear = tries_before_clear(context)

    def load(self) -> AttemptRecord | None:
        """Return what the last try saved; None if there was none."""
        found = self._store.get(_KEY)
        return AttemptRecord.from_dict(found) if found else None

    def save(self, record: AttemptRecord) -> None:
        """Store the record for as long as the task instance exists."""
        self._store.set(_KEY, record.to_dict(), retention=NEVER_EXPIRE)

    def load_result(self) -> dict[str, Any] | None:
        """Return the result that an earlier try saved; None if there is none, or the task was cleared since."""
        found, record = self._store.get(_RESULT_KEY) or {}, self.load()
        is_history = is_delivered(record, tries_before_clear=self._tries_before_clear)
        return None if is_history or found.get("of") != self._mark(record) else found["result"]

    def save_result(self, result: Mapping[str, Any]) -> None:
        """Store the result of a job that is about to be deleted, so that a later try does not train again for it."""
        kept = {"of": self._mark(self.load()), "result": dict(result)}
        self._store.set(_RESULT_KEY, kept, retention=NEVER_EXPIRE)

    def _mark(self, record: AttemptRecord | None) -> dict[str, Any]:
        """Return what distinguishes a result from that of an attempt before a clear."""
        return {"clear_number": self._max_tries, "attempt": record.attempt if record else None}


def tries_before_clear(context: Mapping[str, Any]) -> int:
    """Return how many tries the task had had at its last clear; 0 if it was never cleared.

    A clear sets `max_tries` to `try_number + retries`, with the DAG's `retries` of that moment; nothing else changes
    it.
    """
    return int(context["ti"].max_tries - (context["task"].retries or 0))
