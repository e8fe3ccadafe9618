"""`PyTorchJobTrigger`: follows a job without a worker slot. Its one event is the job's conclusion."""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from ptjob_provider.airflow import asking
from ptjob_provider.airflow.event import JobEvent
from ptjob_provider.airflow.masking import masked
from ptjob_provider.airflow.pulse import Pulse
from ptjob_provider.airflow.reaching import DEFAULT_CONN_ID, Access
from ptjob_provider.airflow.stopping import Fate, delete_if_unfinished, fate_in_trigger
from ptjob_provider.airflow.tasklog import TaskLog, drained
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.logs import LogCursor
from ptjob_provider.core.runner import follow
from ptjob_provider.core.submission import Submission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ptjob_provider.core.conclusion import Conclusion

CURSOR_KEY = "ptjob_log_cursor"
"""The XCom that holds the place of the last line in the task's log, for a trigger that goes on in another process."""

KEEP_INTERVAL = 30.0
"""Seconds between two writes of that XCom."""

YOUTH = 8.0
"""Seconds after its deferral in which a trigger is taken for the first of its try. Another triggerer takes over after
30 s without a heartbeat, and a new one needs longer than this to start; the first question to a fresh triggerer's API
may take 20 s on a busy machine, and the log should not wait for it."""

SHORTEST = 7.0
"""Seconds after its deferral before which a trigger does not fire. Airflow's supervisor sees a worker's end up to 5 s
late, and a task that is queued again by then is marked failed: "finished with state success, but the task instance's
state attribute is queued" (seen on 3.3.2 with a job of 5 s)."""

_CLEANUP_PATIENCE = 1.0


class PyTorchJobTrigger(BaseTrigger):
    """Waits for one job, with rank 0's lines in the task's log, and fires one `JobEvent`.

    Args:
        submission: `Submission.to_dict()`.
        kubernetes_conn_id: the connection; its content never travels. None: the task had none.
        in_cluster: see `reaching.Access`, as the next two.
        config_file: path of a kubeconfig on the triggerer.
        cluster_context: of the kubeconfig.
        deadline: RFC 3339; the job is deleted then. None: no deadline.
        limits: fields of `diagnosis.Limits`.
        keep_running_pods: leave replicas running after the job's end.
        hands_off: the job is somebody else's: watch it and change nothing.
        deferred_at: RFC 3339; when the task was deferred. None: an earlier life is always asked for first.
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
        deferred_at: str | None = None,
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
        self.deferred_at = deferred_at
        self._fired = False
        self._is_over = False
        self._sink: TaskLog | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what another triggerer builds the same trigger from; JSON values only."""
        names = ("submission", "deadline", "limits", "keep_running_pods", "hands_off", "deferred_at")
        fields = {name: getattr(self, name) for name in names}
        return f"{__name__}.{type(self).__name__}", {**fields, **Access.of(self).to_dict()}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follow the job to its end."""
        submission = Submission.from_dict(self.submission)
        try:
            event = JobEvent(submission=submission, conclusion=await self._follow(submission))
        except PTJobError as error:
            self.log.warning("%s", error)
            event = JobEvent(submission=submission, error=str(error), retryable=error.retryable)
        except Exception as error:
            self.log.exception("the trigger failed; the job goes on")
            event = JobEvent(submission=submission, error=f"the trigger failed: {type(error).__name__}: {error}")
        await drained()
        await self._let_the_worker_end()
        self._fired = True
        yield TriggerEvent(replace(event, cursor=self._sink.cursor if self._sink else None).to_dict())  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Delete the job, if Airflow says that its task does not wait for it any more."""
        if self._fired or self.hands_off:
            return
        self._is_over = True
        state = await asking.state_from_trigger(self.task_instance)
        ref = JobRef.from_dict(self.submission["ref"])
        if fate_in_trigger(state) is Fate.KEEP:
            self.log.info("%s is kept: its task is %s", ref, state or "not known to Airflow's API at the moment")
            return
        backend = (await Access.of(self).async_place()).backend
        if await delete_if_unfinished(backend, ref):
            self.log.info("%s was deleted: its task is %s", ref, state)

    async def cleanup(self) -> None:
        """Keep the log's cursor; the job is left alone, for this also runs when a triggerer stops."""
        if self._sink is None or self._fired:
            return
        self._sink.flush()
        if self._is_over:
            return  # another triggerer may have the job, and keeps its own cursor
        with contextlib.suppress(Exception):  # nobody reads answers any more while a triggerer stops
            await self._keep_cursor(self._sink, is_last=True, patience=_CLEANUP_PATIENCE)

    async def _follow(self, submission: Submission) -> Conclusion:
        backend = (await Access.of(self).async_place()).backend
        is_young = self._is_young
        before = None if is_young else await self._earlier_life()
        cursor = LogCursor.from_dict(before["cursor"]) if before and before.get("cursor") else None
        pulse = Pulse()
        self._sink = sink = TaskLog(
            self.log, cursor=cursor, heir_of_a_kill=before is not None and not before.get("is_last"), pulse=pulse
        )
        tending = asyncio.create_task(self._tend(sink, pulse, is_young=is_young))
        try:
            return await follow(
                backend,
                submission,
                sink=sink,
                cursor=cursor,
                deadline=datetime.fromisoformat(self.deadline) if self.deadline else None,
                limits=Limits(**self.limits),
                keep_running_pods=self.keep_running_pods,
                hands_off=self.hands_off,
                mask=masked,
            )
        finally:
            tending.cancel()
            sink.flush()

    @property
    def _is_young(self) -> bool:
        return self._age() < YOUTH

    async def _let_the_worker_end(self) -> None:
        if asking.is_in_triggerer():
            await asyncio.sleep(max(0.0, SHORTEST - self._age()))

    def _age(self) -> float:
        """Return the seconds since the deferral; endless if nobody told it."""
        if self.deferred_at is None:
            return math.inf
        return (datetime.now(UTC) - datetime.fromisoformat(self.deferred_at)).total_seconds()

    async def _own_up(self, sink: TaskLog) -> None:
        """Say so if an earlier life has told the beginning of the log, although this one took itself for the first."""
        before = await self._earlier_life()
        if before is not None and before.get("cursor"):
            told = before["cursor"]["timestamp"]
            sink.notice(f"── lines up to {told} are repeated above: another triggerer had told them before ──")

    async def _earlier_life(self) -> dict[str, Any] | None:
        """Return what an earlier life of this trigger has kept; None if there was none."""
        uid = self.submission["ref"]["uid"]
        try:
            found = await asking.kept(self.task_instance, CURSOR_KEY)
        except Exception as error:  # noqa: BLE001 - without an answer, the log is told from its beginning, as repeated
            self.log.warning("the place in the log is not known, Airflow did not answer: %s", error)
            return {"uid": uid}
        return found if found and found.get("uid") == uid else None

    async def _tend(self, sink: TaskLog, pulse: Pulse, *, is_young: bool) -> None:
        """Keep the cursor every KEEP_INTERVAL, unless another may have kept a later one meanwhile."""
        async with pulse.beating():
            if is_young:
                await self._own_up(sink)
            standstills = pulse.standstills()
            while True:
                if standstills == pulse.standstills():
                    with contextlib.suppress(Exception):  # a cursor that is not kept costs repeated lines, not the job
                        await self._keep_cursor(sink, is_last=False)
                standstills = pulse.standstills()
                await asyncio.sleep(KEEP_INTERVAL)

    async def _keep_cursor(self, sink: TaskLog, *, is_last: bool, patience: float = asking.TRIGGER_PATIENCE) -> None:
        cursor = sink.cursor.to_dict() if sink.cursor else None
        if not await drained(patience):
            return  # a cursor vouches for its line: whoever reads on from here must find it in the log
        value = {"uid": self.submission["ref"]["uid"], "cursor": cursor, "is_last": is_last}
        await asking.keep(self.task_instance, CURSOR_KEY, value, patience=patience)
