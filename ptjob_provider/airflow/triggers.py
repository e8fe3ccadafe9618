"""`PyTorchJobTrigger`: follows a job without a worker slot. Its one event is the job's conclusion."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from ptjob_provider.airflow import asking
from ptjob_provider.airflow.hooks import PyTorchJobHook
from ptjob_provider.airflow.tasklog import TaskLog, drained
from ptjob_provider.core.conclusion import Conclusion
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import JobNotFound, PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import pytorchjob
from ptjob_provider.core.logs import LogCursor
from ptjob_provider.core.runner import follow
from ptjob_provider.core.submission import Submission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from ptjob_provider.core.backend import Backend

CURSOR_KEY = "ptjob_log_cursor"
"""The XCom that holds the place of the last line in the task's log, for a trigger that goes on in another process."""

KEEP_INTERVAL = 30.0
"""Seconds between two writes of that XCom."""

_CLEANUP_PATIENCE = 1.0


class PyTorchJobTrigger(BaseTrigger):
    """Waits for one job, with rank 0's lines in the task's log, and fires `{"conclusion": …}` or `{"error": …}` once.

    Args:
        submission: `Submission.to_dict()`.
        kubernetes_conn_id: the connection; its content never travels.
        deadline: RFC 3339; the job is deleted then. None: no deadline.
        limits: fields of `diagnosis.Limits`.
        keep_running_pods: leave replicas running after the job's end.
        hands_off: the job is somebody else's: watch it and change nothing.
    """

    def __init__(
        self,
        *,
        submission: dict[str, Any],
        kubernetes_conn_id: str = PyTorchJobHook.default_conn_name,
        deadline: str | None = None,
        limits: dict[str, Any] | None = None,
        keep_running_pods: bool = False,
        hands_off: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.submission = submission
        self.kubernetes_conn_id = kubernetes_conn_id
        self.deadline = deadline
        self.limits = limits or {}
        self.keep_running_pods = keep_running_pods
        self.hands_off = hands_off
        self._fired = False
        self._sink: TaskLog | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what another triggerer builds the same trigger from; JSON values only."""
        fields = ("submission", "kubernetes_conn_id", "deadline", "limits", "keep_running_pods", "hands_off")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in fields}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follow the job to its end."""
        try:
            conclusion = await self._follow()
        except PTJobError as error:
            self.log.warning("%s", error)
            event = {"error": str(error), "retryable": error.retryable}
        except Exception as error:
            self.log.exception("the trigger failed; the job goes on")
            event = {"error": f"the trigger failed: {type(error).__name__}: {error}", "retryable": True}
        else:
            event = {"conclusion": conclusion.to_dict(), "submission": self.submission}
        await drained()
        self._fired = True
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Delete the job, if Airflow says that its task does not wait for it any more.

        A triggerer that was frozen and replaced calls this although the task is still deferred (apache/airflow#73454).
        """
        if self._fired or self.hands_off:
            return
        state = await asking.state_from_trigger(self.task_instance)
        ref = JobRef.from_dict(self.submission["ref"])
        if state in {None, "deferred"}:
            self.log.info("%s is kept: its task is %s", ref, state or "not known to Airflow's API at the moment")
            return
        backend = PyTorchJobHook(self.kubernetes_conn_id).backend()
        if await _is_unfinished(backend, ref):
            await backend.delete(ref)
            self.log.info("%s was deleted: its task is %s", ref, state)

    async def cleanup(self) -> None:
        """Keep the log's cursor; the job is left alone, for this also runs when a triggerer stops."""
        if self._sink is None or self._fired:
            return
        self._sink.flush()
        with contextlib.suppress(Exception):  # nobody reads answers any more while a triggerer stops
            await self._keep_cursor(self._sink, is_last=True, patience=_CLEANUP_PATIENCE)

    async def _follow(self) -> Conclusion:
        backend = PyTorchJobHook(self.kubernetes_conn_id).backend()
        before = await self._earlier_life()
        killed = before is not None and not before.get("is_last")
        cursor = LogCursor.from_dict(before["cursor"]) if before and before.get("cursor") else None
        repeats_until = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if killed else ""
        self._sink = sink = TaskLog(self.log, repeats_until=repeats_until)
        sink.cursor = cursor
        keeping = asyncio.create_task(self._keep_cursor_always(sink))
        try:
            return await follow(
                backend,
                Submission.from_dict(self.submission),
                sink=sink,
                cursor=cursor,
                deadline=datetime.fromisoformat(self.deadline) if self.deadline else None,
                limits=Limits(**self.limits),
                keep_running_pods=self.keep_running_pods,
                hands_off=self.hands_off,
            )
        finally:
            keeping.cancel()
            sink.flush()

    async def _earlier_life(self) -> dict[str, Any] | None:
        found = await asking.kept(self.task_instance, CURSOR_KEY)
        return found if found and found.get("uid") == self.submission["ref"]["uid"] else None

    async def _keep_cursor_always(self, sink: TaskLog) -> None:
        while True:
            began = time.monotonic()
            with contextlib.suppress(Exception):  # a cursor that is not kept costs repeated lines, not the job
                await self._keep_cursor(sink, is_last=False)
            await asyncio.sleep(max(0.0, KEEP_INTERVAL - (time.monotonic() - began)))

    async def _keep_cursor(self, sink: TaskLog, *, is_last: bool, patience: float = asking.TRIGGER_PATIENCE) -> None:
        cursor = sink.cursor.to_dict() if sink.cursor else None
        value = {"uid": self.submission["ref"]["uid"], "cursor": cursor, "is_last": is_last}
        await asking.keep(self.task_instance, CURSOR_KEY, value, patience=patience)


def read_event(event: Mapping[str, Any] | None) -> tuple[Submission, Conclusion]:
    """Return what a trigger's event tells; the resumed task is a new process and knows nothing else.

    Raises:
        PTJobError: the trigger could not follow the job, or the event is not one of ours; the job was left as it was.
    """
    if event and "error" in event:
        error = PTJobError(event["error"])
        error.retryable = bool(event.get("retryable"))
        raise error
    if not event or not {"conclusion", "submission"} <= set(event):
        raise PTJobError(f"This is no event of PyTorchJobTrigger: {event!r:.200}. Look whether the job still runs")
    return Submission.from_dict(event["submission"]), Conclusion.from_dict(event["conclusion"])


async def _is_unfinished(backend: Backend, ref: JobRef) -> bool:
    try:
        found = await backend.get(ref.kind, ref.namespace, ref.name)
    except JobNotFound:
        return False
    return JobRef.of(found) == ref and not pytorchjob.read_status(found).phase.is_terminal
