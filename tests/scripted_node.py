"""A stand-in for a node whose kubelet does at a chosen moment what a real one does when it likes: rotate, fail, lag.

It serves a log as the real one does: from whole seconds, the newest file only, of the present run or the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec, JobNotFound
from ptjob_provider.core.kubernetes.client.log_streams import LogStreams
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
    """Return an instant of the test's minute."""
    return f"2026-11-20T10:00:{second:012.9f}Z"


@dataclass(kw_only=True)
class ScriptedRun:
    """One run of the container: when it began, what its newest file holds, and whether it is over.

    Attributes:
        began: second.
        lines: (second, text); a text without a line end is an unfinished line.
        ended: whether it is over.
    """

    began: int
    lines: list[tuple[float, str]] = field(default_factory=list)
    ended: bool = False


@dataclass(kw_only=True)
class ScriptedNode:
    """Both the client and the world of a log's reader.

    Attributes:
        runs: of the pod's container, oldest first; the node keeps the last two.
        uid: of the pod; None: it is gone.
        told: how many runs the pod's status tells of; it may be behind.
        changes: what the status tells of by and by, one after the other; all of it at last.
        is_late: whether nothing is told of the pod before it is asked for.
        has_ended: whether the job has succeeded; one whose pod is gone has.
        is_gone: whether the job was deleted.
        shows_runs: whether the pod was seen to run.
        forgets: whether the node has only the last run any more, and the status tells of no other.
        removes: the same, before the status says so.
        refusals: for each request in turn: what is raised, or served instead of the log.
        breaks: for each request in turn: after how many bytes its answer breaks, if it does.
        asked: the queries that came.
        then: for each request in turn: what happens once it has been answered.
    """

    runs: list[ScriptedRun]
    uid: str | None = "pod"
    told: int = 0
    is_late: bool = False
    has_ended: bool = False
    is_gone: bool = False
    shows_runs: bool = True
    forgets: bool = False
    removes: bool = False
    refusals: list[Exception | bytes | None] = field(default_factory=list)
    breaks: list[int | None] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    then: list[Callable[[ScriptedNode], None]] = field(default_factory=list)
    changes: list[Callable[[ScriptedNode], None]] = field(default_factory=list)
    log_streams: LogStreams = field(default_factory=lambda: LogStreams(1))

    # --- the client

    @contextlib.asynccontextmanager
    async def stream(self, _path: str, *, silence: float, **query: str) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Serve a log from the second that is asked for."""
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

    # --- the world

    async def pod(self, _name: str) -> Manifest | None:
        """Return the pod as its status tells."""
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
        """Return what the world saw of a pod whose log the node has partly removed; else nobody saw it end."""
        is_known = self.forgets or self.removes
        known = self.runs[: self.told or None]
        last = {"lastState": _state(known[-2], is_over=True)} if len(known) > 1 else {}
        status = {"name": "pytorch", "restartCount": len(known) - 1, "state": _state(known[-1], is_over=True), **last}
        return {"metadata": {"uid": uid}, "status": {"containerStatuses": [status]}} if is_known else None

    async def job(self) -> Manifest | None:
        """Return a job that runs, or has succeeded with its pod gone."""
        if self.is_gone:
            return None
        is_over = self.uid is None or self.has_ended
        return {**JOB, "status": {"conditions": [{"type": "Succeeded" if is_over else "Running", "status": "True"}]}}

    async def refresh_pods(self) -> None:
        """Tell of all there is; of a pod that is gone there is nothing to be told."""
        self.is_late = False
        self.told = 0 if self.uid is not None else self.told

    async def change(self, timeout: float) -> None:  # noqa: ASYNC109 - as the world has it
        """Tell a moment later of what comes next; of nothing once the time has passed."""
        await asyncio.sleep(0 if self.changes else timeout)
        if self.changes:
            self.changes.pop(0)(self)
        else:
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
