"""`PyTorchJobTrigger`: follow a job without a worker slot, and fire one event with its outcome."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from ptjob_provider.airflow import compat, config, supervisor
from ptjob_provider.airflow.connection import DEFAULT_CONN_ID, ConnectionArgs
from ptjob_provider.airflow.masking import masked
from ptjob_provider.airflow.outcome import JobEvent
from ptjob_provider.airflow.task_log import ContinuedLog, rate_limiters
from ptjob_provider.airflow.task_session import Fate, fate_in_trigger
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.run.api_errors import ApiErrors
from ptjob_provider.core.run.cleanup import delete_if_unfinished
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.preemptions import next_attempt_at
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.run.training_state import TrainingState
from ptjob_provider.core.training_progress import LinePattern
from ptjob_provider.core.versions import known_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ptjob_provider.core.run.outcome import JobOutcome

SHORTEST = 7.0
"""Minimum seconds before a trigger fires, if it began within as many seconds after its deferral.

Airflow's supervisor observes a worker's end up to 5 s late, and marks a task that is queued again by then as failed:
"finished with state success, but the task instance's state attribute is queued" (observed on 3.3.2 with a job of 5 s).
The seconds count from the start of the trigger, because it is unknown how long the worker still works after the
deferral.
"""

_ARRIVAL = 5.0
"""Seconds after which an event waits no longer for the log, if Airflow has read none of it."""


class PyTorchJobTrigger(BaseTrigger):
    """Waits for one job, writes rank 0's lines to the task's log, and fires one `JobEvent`.

    Args:
        submission: `Submission.to_dict()`.
        kubernetes_conn_id: the connection's name; its content is never serialized. None: the task had none.
        in_cluster: see `connection.ConnectionArgs`, as for the next two.
        config_file: path of a kubeconfig on the triggerer.
        cluster_context: the kubeconfig's context.
        deadline: RFC 3339; the job is deleted at this time. None: no deadline.
        limits: fields of `diagnosis.Limits`; with `max_preemptions`, the pause before the next attempt is waited here.
        keep_running_pods: leave replicas running after the job's end.
        hands_off: follow the job without changing it, because it has another owner.
        progress: pattern of lines that say how far the training is; None: those that are built in.
        deferred_at: RFC 3339; time of the deferral. None: unknown.
        _of_newer: arguments of a newer version that deferred the task; ignored.
    """

    def __init__(
        self,
        *,
        submission: dict[str, Any],
        kubernetes_conn_id: str | None = DEFAULT_CONN_ID,
        in_cluster: bool | None = None,
        config_file: str | None = None,
        cluster_context: str | None = None,
        deadline: str | None = None,
        limits: dict[str, Any] | None = None,
        keep_running_pods: bool = False,
        hands_off: bool = False,
        progress: str | None = None,
        deferred_at: str | None = None,
        **_of_newer: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.submission = submission
        self.kubernetes_conn_id = kubernetes_conn_id
        self.in_cluster = in_cluster
        self.config_file = config_file
        self.cluster_context = cluster_context
        self.deadline = deadline
        self.limits = limits or {}
        self.keep_running_pods = keep_running_pods
        self.hands_off = hands_off
        self.progress = progress
        self.deferred_at = deferred_at
        self._fired = False
        self._was_killed = False
        self._task_log: ContinuedLog | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path and the arguments that create the same trigger in another triggerer."""
        names = ("submission", "deadline", "limits", "keep_running_pods", "hands_off", "progress", "deferred_at")
        fields = {name: getattr(self, name) for name in names}
        return f"{__name__}.{type(self).__name__}", {**fields, **ConnectionArgs.of(self).to_dict()}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follow the job to its end, and fire one event."""
        submission = Submission.from_dict(self.submission)
        earliest = asyncio.get_running_loop().time() + (SHORTEST if self._age() < SHORTEST else 0.0)
        try:
            event = JobEvent(submission=submission, outcome=await self._follow(submission))
        except PTJobError as error:
            self.log.warning("%s", error)
            event = JobEvent(submission=submission, error=str(error), retryable=error.retryable)
        except Exception as error:
            self.log.exception("the trigger failed; the job continues")
            event = JobEvent(submission=submission, error=f"the trigger failed: {type(error).__name__}: {error}")
        if self._task_log is not None:
            await self._task_log.sink.written()
            await rate_limiters.get().drain(_ARRIVAL)
        if event.outcome is not None:
            await self._pause(submission, event.outcome)
        await self._wait_for_worker(earliest)
        self._fired = True
        if self._task_log is not None:
            self._task_log.fired()
            event = replace(event, cursor=self._task_log.cursor, knows_place=self._task_log.has_begun)
        yield TriggerEvent(event.to_dict(self.log.warning))  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Delete the job if Airflow reports that its task no longer waits for it."""
        if self._fired or self.hands_off:
            return
        self._was_killed = True
        state = await supervisor.state_from_trigger(self.task_instance, patience=supervisor.KILL_PATIENCE)
        if fate_in_trigger(state) is Fate.DELETE:
            await self._delete(state)
            return
        ref = JobRef.from_dict(self.submission["ref"])
        self.log.info("%s is kept: its task is %s", ref, state or "not known to Airflow's API at the moment")

    async def cleanup(self) -> None:
        """Save the log cursor, and keep the job: Airflow also calls this when a triggerer stops.

        If this version of Airflow never calls `on_kill`, delete the job if its task no longer waits for it.
        """
        if not (compat.HAS_ON_KILL or self._fired or self.hands_off):
            state = await supervisor.state_from_trigger(self.task_instance)
            if fate_in_trigger(state) is Fate.DELETE:
                await self._delete(state)
        if self._task_log is not None and not (self._fired or self._was_killed):
            await self._task_log.leave()

    async def _delete(self, state: str | None) -> None:
        ref = JobRef.from_dict(self.submission["ref"])
        own, creator = await config.read_in_trigger(), Submission.from_dict(self.submission).instance
        if own is None or not own.has(creator):
            self.log.warning("%s is kept: it is a job of installation %s, and this is %s", ref, creator, own)
            return
        backend = (await ConnectionArgs.of(self).async_resolve()).backend
        began = datetime.fromisoformat(self.deferred_at) if self.deferred_at else datetime.min.replace(tzinfo=UTC)
        if await delete_if_unfinished(backend, ref, unless_left_since=began):
            self.log.info("%s was deleted: its task is %s", ref, state)

    async def _follow(self, submission: Submission) -> JobOutcome:
        errors = ApiErrors(str(submission.ref), self.log.warning, timeout=config.SECTION_OPTIONS.api_error_timeout())
        connection = await errors.answer(ConnectionArgs.of(self).async_resolve)
        state = TrainingState(None if self.progress is None else LinePattern(self.progress))
        self._task_log = ContinuedLog(self.task_instance, submission.ref.uid, logger=self.log, state=state)
        try:
            return await follow(
                connection.backend,
                submission,
                sink=self._task_log.sink,
                cursor=self._task_log.begin,
                deadline=datetime.fromisoformat(self.deadline) if self.deadline else None,
                limits=Limits(**known_fields(Limits, self.limits)),
                keep_running_pods=self.keep_running_pods,
                hands_off=self.hands_off,
                mask=masked,
                state=state,
                api_error_timeout=connection.api_error_timeout,
            )
        finally:
            self._task_log.end()

    async def _pause(self, submission: Submission, outcome: JobOutcome) -> None:
        """Wait until the task's next attempt is due, if it makes one; the job has ended, so stopping needs nothing."""
        now, limit = datetime.now(UTC), Limits(**known_fields(Limits, self.limits)).max_preemptions
        due = next_attempt_at(submission, outcome, max_preemptions=limit, now=now)
        if due is None or due <= now or (self.deadline and due >= datetime.fromisoformat(self.deadline)):
            return
        seconds = (due - now).total_seconds()
        self.log.info("%s was ended by the platform; its task goes on in %.0f s", submission.ref, seconds)
        await asyncio.sleep(seconds)

    async def _wait_for_worker(self, earliest: float) -> None:
        if supervisor.is_in_triggerer():
            await asyncio.sleep(earliest - asyncio.get_running_loop().time())

    def _age(self) -> float:
        """Return the seconds since the deferral; infinite if its time is unknown."""
        if self.deferred_at is None:
            return math.inf
        return (datetime.now(UTC) - datetime.fromisoformat(self.deferred_at)).total_seconds()
