"""Stand-in for a node whose kubelet rotates, fails or lags at chosen moments.

It serves logs as a real one does: from whole seconds, only the newest file, of the current run or the previous one.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec, JobNotFound
from ptjob_provider.core.logs import nanoseconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from ptjob_provider.core.identity import Manifest

REPLICA = "digits-master-0"
JOB = {
    "metadata": {"name": "digits", "namespace": "team", "uid": "job"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": {"containers": []}}}
        }
    },
    "status": {"conditions": [{"type": "Running", "status": "True"}]},
}


def at(second: float) -> str:
    """Return a timestamp in the minute of the test."""
    return f"2026-11-20T10:00:{second:012.9f}Z"


@dataclass(kw_only=True)
class ScriptedRun:
    """One run of the container: its start, the content of its newest log file, and whether it has ended.

    Attributes:
        began: Second of the start.
        lines: Pairs of second and text; a text without a line end is an incomplete line.
        ended: True if the run has ended.
    """

    began: int
    lines: list[tuple[float, str]] = field(default_factory=list)
    ended: bool = False


@dataclass(kw_only=True)
class ScriptedNode:
    """Replaces both the client and the informer of a log reader.

    Attributes:
        runs: Runs of the pod's container, oldest first; the node keeps the logs of the last two.
        uid: UID of the pod. None: the pod is gone.
        told: Number of runs in the pod's status, which may be behind. 0: all.
        changes: Changes that `change` applies in turn; after the last one the status has all runs.
        is_late: True if the pod is unknown until `refresh_pods`.
        has_ended: True if the job has succeeded; a job without a pod has, too.
        is_blind: True if the status is complete only after `refresh_pods`, as while the watch of pods is dead.
        is_gone: True if the job was deleted.
        shows_runs: True if the pod's status has the container.
        forgets: True if the node and the status have only the last run.
        removes: True if the node has only the last run, and the status still has the one before.
        refusals: For each request in turn, the exception to raise or the response to serve instead of the log.
        breaks: For each request in turn, the number of bytes after which the response breaks, if it does.
        asked: Queries of all requests.
        then: For each request in turn, a function that is called after the response.
    """

    runs: list[ScriptedRun]
    uid: str | None = "pod"
    told: int = 0
    is_late: bool = False
    has_ended: bool = False
    is_blind: bool = False
    is_gone: bool = False
    shows_runs: bool = True
    forgets: bool = False
    removes: bool = False
    refusals: list[Exception | bytes | None] = field(default_factory=list)
    breaks: list[int | None] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    then: list[Callable[[ScriptedNode], None]] = field(default_factory=list)
    changes: list[Callable[[ScriptedNode], None]] = field(default_factory=list)
    log_streams: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    # --- client

    @contextlib.asynccontextmanager
    async def stream(self, _path: str, *, silence: float, **query: str) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Serve a log from the requested second."""
        assert silence > 0
        self.asked.append(query)
        refusal = self.refusals.pop(0) if self.refusals else None
        if isinstance(refusal, Exception):
            raise refusal
        end = self.breaks.pop(0) if self.breaks else None
        yield _chunks(self._served(query) if refusal is None else refusal, end)
        if self.then:
            self.then.pop(0)(self)

    def _served(self, query: dict[str, str]) -> bytes:
        if self.uid is None or ("previous" in query and (self.forgets or len(self.runs) < 2)):
            raise JobNotFound("gone", code=404)
        if "previous" in query and self.removes:
            raise InvalidSpec("previous terminated container not found")
        run = self.runs[-2 if "previous" in query else -1]
        since = nanoseconds(query.get("sinceTime", at(0)))
        return b"".join(
            f"{at(second)} {text}".encode() for second, text in run.lines if nanoseconds(at(second)) >= since
        )

    # --- informer

    async def pod(self, _name: str) -> Manifest | None:
        """Return the pod with its reported status."""
        if self.uid is None or self.is_late:
            return None
        known = self.runs[: self.told or None]
        states = [_state(run, is_over=run.ended or run is not known[-1]) for run in known]
        last = {"lastState": states[-2]} if len(states) > 1 and not self.forgets else {}
        status = {"name": "pytorch", "restartCount": len(known) - 1, "state": states[-1], **last}
        phase = "Succeeded" if known[-1].ended and self.told == 0 else "Running"
        return {
            "metadata": {"uid": self.uid, "name": REPLICA, "creationTimestamp": at(0)},
            "spec": {"restartPolicy": "OnFailure"},
            "status": {"phase": phase, "startTime": _whole(0), "containerStatuses": [status] * self.shows_runs},
        }

    def last_state(self, uid: str) -> Manifest | None:
        """Return the last observed state of a pod whose log is partly removed, or None if its end was not observed."""
        is_known = self.forgets or self.removes
        known = self.runs[: self.told or None]
        last = {"lastState": _state(known[-2], is_over=True)} if len(known) > 1 else {}
        status = {"name": "pytorch", "restartCount": len(known) - 1, "state": _state(known[-1], is_over=True), **last}
        return {"metadata": {"uid": uid}, "status": {"containerStatuses": [status]}} if is_known else None

    async def job(self) -> Manifest | None:
        """Return the job: running, or succeeded if its pod is gone."""
        if self.is_gone:
            return None
        is_over = self.uid is None or self.has_ended
        return {**JOB, "status": {"conditions": [{"type": "Succeeded" if is_over else "Running", "status": "True"}]}}

    async def refresh_pods(self) -> None:
        """Make the status complete, unless the pod is gone."""
        self.is_late = False
        self.told = 0 if self.uid is not None else self.told

    async def change(self, timeout: float) -> None:  # noqa: ASYNC109 - same signature as the informer's
        """Apply the next change at once; without one, complete the status after the timeout."""
        await asyncio.sleep(0 if self.changes else timeout)
        if self.changes:
            self.changes.pop(0)(self)
        elif not self.is_blind:
            self.told = 0


def _state(run: ScriptedRun, *, is_over: bool) -> dict[str, Any]:
    if not is_over:
        return {"running": {"startedAt": _whole(run.began)}}
    finished_at = _whole(max([run.began, *(second for second, _ in run.lines)]))
    return {"terminated": {"startedAt": _whole(run.began), "finishedAt": finished_at, "exitCode": 0}}


def _whole(second: float) -> str:
    return at(second)[:19] + "Z"


async def _chunks(data: bytes, end: int | None) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(data[:end]), 100):
        yield data[start : start + 100]
    if end is not None:
        raise ClusterUnavailable("the connection broke")
