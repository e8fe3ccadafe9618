"""One replica's log over the API server: every line once, in order, across broken streams, restarts and new pods.

What the kubelet does (all tried): `sinceTime` is cut to whole seconds, so what was read is asked for again and dropped
by its place; a long line comes whole with the timestamp of its beginning; a follow stream ends when the container ends,
and also when somebody in between ends it; the status of a container that was started again is told up to a second late,
so a stream that is opened in that second is the next run's, which is why a line's place is carried over to that run.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec, JobNotFound
from ptjob_provider.core.kinds import pytorchjob
from ptjob_provider.core.kubernetes import paths
from ptjob_provider.core.logs import LineCounter, LineSplitter, LogCursor, LogLine, StampedPiece, nanoseconds
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.client import Client
    from ptjob_provider.core.kubernetes.world import World
    from ptjob_provider.core.logs import Piece

_SILENCE = 300.0
"""Seconds without a line after which a stream is opened anew: it may be dead, and nothing else would tell."""

_INTERVAL = 1.0
_LATE = 3.0
"""Seconds that a container's status may be behind its log."""

_NEVER_STARTED = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the training container, as its pod's status tells of it."""

    pod_uid: str
    restart_count: int
    started_at: str
    ended: bool


class LogReader:
    """Timestamped bytes of one run → lines with their places."""

    def __init__(self, run: Run, since: LogCursor | None) -> None:
        self._splitter = LineSplitter()
        self._counter = LineCounter(
            pod_uid=run.pod_uid, container=pytorchjob.CONTAINER, restart_count=run.restart_count, since=since
        )
        self._stamp = run.started_at
        self._is_within = False

    def feed(self, chunk: bytes) -> Iterator[LogLine]:
        """Yield the new lines that this chunk finishes."""
        return self._counter.lines([self._stamped(piece) for piece in self._splitter.feed(chunk)])

    def finish(self) -> Iterator[LogLine]:
        """Yield what the container has left without a line end."""
        return self._counter.lines([self._stamped(piece) for piece in self._splitter.finish()])

    def _stamped(self, piece: Piece) -> StampedPiece:
        text = piece.text
        if not self._is_within:
            stamp, _, rest = text.partition(" ")
            if _is_stamp(stamp):
                self._stamp, text = stamp, rest
        self._is_within = piece.continues
        return StampedPiece(timestamp=self._stamp, text=text, continues=piece.continues)


class ReplicaLog:
    """The log of one replica's training container."""

    def __init__(self, client: Client, world: World, ref: JobRef, replica: str) -> None:
        self._client = client
        self._world = world
        self._ref = ref
        self._replica = replica
        self._read: LogCursor | None = None
        self._last: Run | None = None
        self._is_cut = False

    async def follow(self, since: LogCursor | None) -> AsyncGenerator[LogLine, None]:
        """Yield the lines after the cursor until the container will write no more; see `Backend.logs`."""
        self._read = since
        while True:
            pod = await self._world.pod(self._replica)
            run = _run_of(pod)
            if pod is not None and run is not None and self._is_news(run):
                async for line in self._missed(pod, run):
                    yield line
                async for line in self._follow_run(run):
                    yield line
            elif await self._is_over(pod):
                return
            else:
                await self._world.change(_INTERVAL)

    async def snapshot(self, since: LogCursor | None) -> AsyncGenerator[LogLine, None]:
        """Yield the lines after the cursor that are there now.

        Raises:
            JobNotFound: the pod is gone, and its log with it.
        """
        self._read = since
        pod = await self._world.pod(self._replica)
        if pod is None and (since is not None or await self._has_begun()):
            raise JobNotFound(f"{self._ref.namespace}/{self._replica}: the pod is gone, and its log with it")
        run = _run_of(pod)
        if pod is None or run is None:
            return
        async for line in self._missed(pod, run):
            yield line
        async for line in self._read_to_end(run):
            yield line

    # --- one run

    def _is_news(self, run: Run) -> bool:
        before = self._last
        if before is None:
            return True
        return (run.pod_uid, run.restart_count) != (before.pod_uid, before.restart_count)

    async def _follow_run(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield a run's lines until it has ended and all of them were read."""
        while True:
            async for line in self._stream(run):
                yield line
            if await self._has_ended(run):
                break
        try:
            async for line in self._read_to_end(run):
                yield line
        except JobNotFound:
            if self._is_cut or not self._was_seen_ending(run):
                yield self._loss(run)
        self._last = run

    def _was_seen_ending(self, run: Run) -> bool:
        """Whether the stream can have told all: a pod that is taken off a silent node leaves in the middle."""
        seen = _run_of(self._world.last_state(run.pod_uid))
        return seen is not None and (seen.ended or seen.restart_count > run.restart_count)

    async def _stream(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield lines of one follow stream; a part of a line at its end is left for the next one."""
        self._is_cut = True
        try:
            async with self._open(run, follow="true") as chunks:
                reader = LogReader(run, self._since(run))
                async for chunk in chunks:
                    for line in reader.feed(chunk):
                        self._read = line.cursor
                        yield line
            self._is_cut = False
        except (ClusterUnavailable, InvalidSpec, JobNotFound):
            await asyncio.sleep(_INTERVAL)  # the status decides whether it is opened again

    def _loss(self, run: Run) -> LogLine:
        """Say that the pod went while its log could not be read."""
        start = LogCursor(
            pod_uid=run.pod_uid,
            container=pytorchjob.CONTAINER,
            restart_count=run.restart_count,
            timestamp=run.started_at,
            ordinal=-1,
        )
        place = self._since(run) or start
        text = f"{self._replica}: its pod is gone; what it wrote after {place.timestamp} was lost with it"
        return LogLine(text=text, timestamp=place.timestamp, cursor=place, notice=True)

    async def _read_to_end(self, run: Run, *, previous: bool = False) -> AsyncGenerator[LogLine, None]:
        """Yield what a run has written after the last line that was read, and its unfinished last line."""
        query = {"previous": "true"} if previous else {}
        try:
            async with self._open(run, **query) as chunks:
                reader = LogReader(run, self._since(run))
                async for chunk in chunks:
                    for line in reader.feed(chunk):
                        self._read = line.cursor
                        yield line
                for line in reader.finish() if run.ended else ():
                    self._read = line.cursor
                    yield line
        except InvalidSpec:
            return  # 400: the container never started, or its log was removed

    async def _missed(self, pod: Manifest, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield the rest of the run before this one, if nobody has read it; the node keeps no older ones."""
        before = _previous(pod, run)
        if before is None or self._is_told(before):
            return
        with contextlib.suppress(JobNotFound):
            async for line in self._read_to_end(before, previous=True):
                yield line

    def _is_told(self, run: Run) -> bool:
        if self._last is not None and self._last.pod_uid == run.pod_uid:
            return self._last.restart_count >= run.restart_count
        read = self._read
        return read is not None and read.pod_uid == run.pod_uid and read.restart_count > run.restart_count

    def _open(self, run: Run, **query: str) -> Any:
        since = self._since(run)
        first = {"sinceTime": _whole_second(since.timestamp)} if since else {}
        path = paths.pod_log(self._ref.namespace, self._replica)
        return self._client.stream(
            path, silence=_SILENCE, container=pytorchjob.CONTAINER, timestamps="true", **first, **query
        )

    def _since(self, run: Run) -> LogCursor | None:
        """Return the last line that was read as a place in this run; None if it is not of this pod, or before it."""
        read = self._read
        if read is None or read.pod_uid != run.pod_uid or read.restart_count > run.restart_count:
            return None
        if read.restart_count < run.restart_count and nanoseconds(read.timestamp) < nanoseconds(run.started_at):
            return None
        return replace(read, restart_count=run.restart_count)

    async def _has_ended(self, run: Run) -> bool:
        """Whether the run is over, by a status that is young enough to know; False opens the stream again."""
        waited = 0.0
        while waited < _LATE:
            now = _run_of(await self._world.pod(self._replica))
            if now is None or now.ended or (now.pod_uid, now.restart_count) != (run.pod_uid, run.restart_count):
                return True
            await self._world.change(_INTERVAL)
            waited += _INTERVAL
        return False

    async def _is_over(self, pod: Manifest | None) -> bool:
        job = await self._world.job()
        if job is None:
            return pod is None or _has_stopped(pod)
        is_finished = pytorchjob.read_status(job).phase.is_terminal
        if pod is None:
            return is_finished
        return _has_stopped(pod) and (
            is_finished or pod["status"].get("phase") == "Succeeded" or self._policy(job) == "Never"
        )

    async def _has_begun(self) -> bool:
        """Whether this replica's pod must have been there: the job has one of this name, and has run."""
        job = await self._world.job()
        if job is None:
            return True
        is_ours = any(each.name == self._replica for each in pytorchjob.replicas(job))
        return is_ours and pytorchjob.read_status(job).phase not in {JobPhase.PENDING, JobPhase.SUSPENDED}

    def _policy(self, job: Manifest) -> str:
        role = next(each.role for each in pytorchjob.replicas(job) if each.name == self._replica)
        return str(job["spec"]["pytorchReplicaSpecs"][role.capitalize()].get("restartPolicy") or "OnFailure")


def _run_of(pod: Manifest | None) -> Run | None:
    """Return the newest run of the training container that has begun; None if there was none yet."""
    status = _training_status(pod)
    if pod is None or status is None:
        return None
    state, count = status.get("state") or {}, int(status.get("restartCount") or 0)
    running, ended = state.get("running"), state.get("terminated")
    if running is None and ended is None:
        ended = (status.get("lastState") or {}).get("terminated")  # it waits for its next start
    found = running or ended
    if not found or not found.get("startedAt") or found["startedAt"] == _NEVER_STARTED:
        return None
    return Run(
        pod_uid=pod["metadata"]["uid"], restart_count=count, started_at=found["startedAt"], ended=running is None
    )


def _previous(pod: Manifest, run: Run) -> Run | None:
    ended = ((_training_status(pod) or {}).get("lastState") or {}).get("terminated")
    if not ended or not ended.get("startedAt") or ended["startedAt"] == _NEVER_STARTED:
        return None
    return replace(run, restart_count=run.restart_count - 1, started_at=ended["startedAt"], ended=True)


def _training_status(pod: Manifest | None) -> Manifest | None:
    statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    return next((each for each in statuses if each["name"] == pytorchjob.CONTAINER), None)


def _has_stopped(pod: Manifest) -> bool:
    """Whether the training container will not run again in this pod."""
    if pod["status"].get("phase") in {"Succeeded", "Failed"}:
        return True
    ended = ((_training_status(pod) or {}).get("state") or {}).get("terminated")
    if ended is None:
        return False
    policy = pod["spec"].get("restartPolicy")
    return bool(policy == "Never" or (policy == "OnFailure" and ended.get("exitCode") == 0))


def _is_stamp(text: str) -> bool:
    try:
        nanoseconds(text)
    except ValueError:
        return False
    return True


def _whole_second(timestamp: str) -> str:
    """Cut an RFC 3339 instant to its second, as the server does on its way to the kubelet."""
    head, dot, tail = timestamp.partition(".")
    return head + tail.lstrip("0123456789") if dot else timestamp
