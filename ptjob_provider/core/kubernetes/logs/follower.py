"""Follow one replica's log over the API server: every line once, in order, across restarts and new pods.

A *run* is one run of the training container; a restart of the container, or a new pod, begins the next run. Behaviour
of the kubelet on which this module relies (all tested, or read in its source):

- `sinceTime` is truncated to whole seconds, so that known lines are sent again; they are dropped by their cursors.
- A long line is sent whole, with the timestamp of its beginning.
- A follow stream ends when the container ends, when a proxy ends it, and after four hours.
- The status of a restarted container is up to a second late. A stream that is opened within this second has the next
  run's log, whose lines are reported as the ended run's. Once the status is up to date, the next run's log shows this:
  it has the last of these lines. The cursor is then corrected, and the ended run is reported late.
- A log is rotated at 10 MiB. An open stream continues in the new file; later requests get only the new file.
"""

from __future__ import annotations

from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec, JobNotFound
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.logs import parse, runs
from ptjob_provider.core.kubernetes.logs.parse import LogReader, NodeRefused, ReadPosition, whole_second
from ptjob_provider.core.kubernetes.logs.replica import Replica
from ptjob_provider.core.shared import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.client.log_streams import StreamSlot
    from ptjob_provider.core.kubernetes.informer.cache import JobCache
    from ptjob_provider.core.kubernetes.logs.runs import Run
    from ptjob_provider.core.logs import LogCursor, LogLine

_LONGEST_PAUSE = 30.0
"""Maximum seconds between tries to read from an unresponsive server."""

_SILENCE = 3600.0
"""Seconds without a line after which a stream is reopened. TCP keep-alive detects a dead connection within five
minutes, but not if a gateway answers its probes although the server is gone."""

_TRIES = 8
"""Tries to read the rest of an ended run, for about a minute."""

_FEW_TRIES = 5
"""Tries of a one-off read if the server is unavailable, for some seconds."""

_TRIES_OF_A_REFUSAL = 2
"""Tries of a one-off read if the server answers that there is no log: a gateway may have sent this answer."""

_PORTION = 1024 * 1024
"""Characters that are read at once without a stream; the rest is read with the next portion."""

_WEIGHT = 64
"""Characters that each line counts in addition to its text, so that a million empty lines are not one portion."""

_REQUEST_ERRORS = (ClusterUnavailable, InvalidSpec, JobNotFound, NodeRefused)
"""Errors of a log request after which the container's status decides whether it is retried."""


class _AnotherRun(Exception):
    """The response has the log of a later run, which the pod's status does not show yet."""


class _Lost(Exception):
    """The node no longer has the log."""


class ReplicaLog:
    """The log of one replica's training container."""

    def __init__(self, client: Client, cache: JobCache, ref: JobRef, replica: str) -> None:
        self._client = client
        self._replica = Replica(cache, ref, replica)
        self._namespace = ref.namespace
        self._name = replica
        self._position = ReadPosition()
        self._backoff = Backoff(1.0, _LONGEST_PAUSE)
        self._has_all = False  # the last stream ended by itself, so that all lines were read
        self._is_uncertain = False  # the last response neither had the expected line nor a later one
        self._unfinished: list[LogLine] = []  # the last line of the last response, without its line end
        self._first_cursor: LogCursor | None = None  # of the first line of a run that is read from its beginning

    async def follow(self, since: LogCursor | None) -> AsyncGenerator[LogLine, None]:
        """Yield the lines after the cursor until the container will not run again; see `Backend.logs`."""
        self._position.read = since
        while True:
            pod = await self._replica.pod()
            run = self._replica.newest(pod)
            for line in self._notice_of_unread_run(pod):
                yield line
            if pod is not None and run is not None and not run.is_same(self._position.last):
                async for line in self._missed_before(pod, run):
                    yield line
                async for line in self._follow_run(run):
                    yield line
            elif await self._replica.is_over(pod):
                return
            else:
                await self._replica.change()

    async def snapshot(self, since: LogCursor | None) -> AsyncGenerator[LogLine, None]:
        """Yield the existing lines after the cursor.

        Raises:
            JobNotFound: the pod is gone and its log with it, or the job is gone and no run of its pod was observed.
        """
        self._position.read = since
        pod = await self._replica.pod()
        if pod is None and (since is not None or await self._replica.has_begun()):
            pod = await self._replica.pod_at_server()
            if pod is None:
                raise JobNotFound(f"{self._replica}: the pod is gone, and its log with it")
        run = self._replica.newest(pod)
        if pod is None or run is None:
            await self._replica.check_job()
            return
        async for line in self._missed_before(pod, run):
            yield line
        try:
            async for line in self._read_now(run):
                yield line
        except _AnotherRun:
            return
        except (InvalidSpec, NodeRefused) as error:  # 400: its log was removed
            raise JobNotFound(f"{self._replica}: {error}") from error

    # --- one run

    async def _read_now(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield the existing lines; retry a few times on errors."""
        while True:
            try:
                async for line in self._read_to_end(run):
                    yield line
            except (ClusterUnavailable, InvalidSpec) as error:
                self._backoff.failures += 1
                tries = _FEW_TRIES if isinstance(error, ClusterUnavailable) else _TRIES_OF_A_REFUSAL
                if self._backoff.failures >= tries:
                    raise
                await self._backoff.pause()
            else:
                return

    async def _follow_run(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield a run's lines until it has ended, and a notice if its last lines are lost."""
        self._has_all, self._unfinished, self._first_cursor = False, [], None
        if not run.ended:
            async with self._client.log_streams.slot() as slot:
                async for line in self._while_running(run, slot):
                    yield line
        try:
            async for line in self._rest(run):
                yield line
        except _Lost:
            for line in self._unfinished:
                yield line
            if not self._has_all or not self._replica.has_reported_end(run):
                yield await self._loss_notice(run)
        self._position.last = run

    async def _while_running(self, run: Run, slot: StreamSlot) -> AsyncGenerator[LogLine, None]:
        """Yield lines until the run has ended, over a stream or, while none is free, in turns."""
        is_behind = False
        while slot.has_stream or not await self._replica.ends_before(run, slot.turn(is_behind=is_behind)):
            if not slot.has_stream:
                lines, is_behind = await self._read_in_turn(run)
                for line in lines:
                    yield line
                continue
            async for line in self._stream(run):
                yield line
            if await self._replica.has_ended(run) or await self._replica.ends_before(run, self._backoff.pause()):
                return

    async def _stream(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of one follow stream; an incomplete last line is left for the next stream."""
        self._has_all = False
        with suppress(*_REQUEST_ERRORS, _AnotherRun):  # the pod's status decides whether the stream is reopened
            async with (
                self._open(run, self._position.since(run), follow=True) as chunks,
                aclosing(self._lines(run, chunks)) as lines,
            ):
                async for line in lines:
                    yield line
            self._has_all = not self._is_uncertain
        self._backoff.failures += 1

    async def _read_in_turn(self, run: Run) -> tuple[list[LogLine], bool]:
        """Return the next lines, and whether more lines exist already; on errors nothing, until the next turn."""
        try:
            lines, is_whole = await self._portion(run)
        except (*_REQUEST_ERRORS, _AnotherRun):
            return [], False
        return lines, not is_whole

    async def _rest(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of an ended run after the last one read, including a last line without a line end.

        Raises:
            _Lost: the node no longer has the log.
            ClusterUnavailable: the server was unavailable for too long.
        """
        last_error: Exception | None = None
        for _ in range(_TRIES):
            kept = runs.kept(run, await self._replica.pod())
            if kept is None:
                break
            ended, is_previous = kept
            try:
                async for line in self._read_to_end(ended, is_previous=is_previous):
                    yield line
            except (*_REQUEST_ERRORS, _AnotherRun) as error:
                last_error = error
                if is_previous and isinstance(error, InvalidSpec | NodeRefused):
                    break  # the node has removed the log
                self._backoff.failures += 1
                await self._backoff.pause()
            else:
                return
        if isinstance(last_error, ClusterUnavailable):
            raise last_error
        raise _Lost from last_error

    async def _missed_before(self, pod: Manifest, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield what was missed before this run: notices of lost runs, and unread lines of the previous run.

        The node keeps no older runs than the previous one.
        """
        before = runs.before(pod, run)
        async for line in self._misattributed(pod, run, before):
            yield line
        oldest, read = before or run, self._position.read or self._replica.start_of_pod(pod)
        if parse.is_skipped(read, self._position.last, oldest):
            yield parse.skipped(self._name, read, oldest)
        if before is None or self._position.has_read(before):
            return
        try:
            async for line in self._rest(before):
                yield line
        except _Lost:
            yield parse.skipped(self._name, self._position.since(before) or parse.start_of_run(before), run)

    async def _misattributed(self, pod: Manifest, run: Run, before: Run | None) -> AsyncGenerator[LogLine, None]:
        """If the last lines were reported as an earlier run's, correct the cursor, and yield that run's own lines.

        The last of these has the corrected cursor, so that a reader that resumes there repeats nothing.

        Args:
            pod: the replica's pod.
            run: its newest run.
            before: the run before.
        """
        read, writer = self._position.read, self._position.later_writer(run, before)
        if read is None or writer is None or not await self._has_line(writer, read, is_previous=writer is before):
            return
        began = replace(writer, restart_count=read.restart_count, started_at=self._replica.start_of_pod(pod).timestamp)
        unread = (before if writer is run else None) or self._position.last or began
        pending = heading = parse.belated(self._name, parse.start_of_run(unread), writer.started_at)
        self._position.read = None
        try:
            async for line in self._rest(unread):
                yield pending
                pending = line
        except _Lost:
            if pending is not heading:
                yield pending
            pending = parse.skipped(self._name, self._position.read or parse.start_of_run(unread), writer)
        corrected = replace(read, restart_count=writer.restart_count)
        self._position.read, self._position.last = corrected, None
        if pending is not heading:
            yield replace(pending, cursor=corrected)

    async def _has_line(self, run: Run, cursor: LogCursor, *, is_previous: bool) -> bool:
        """Return whether the run's log has the line of the cursor, whichever run it was reported for."""
        for _ in range(_TRIES):
            reader = LogReader(run, replace(cursor, restart_count=run.restart_count))
            try:
                async with (
                    self._client.log_streams.reading(),
                    self._open(run, cursor, is_previous=is_previous) as chunks,
                ):
                    async for chunk in chunks:
                        if any(reader.feed(chunk)):
                            break  # a new line, which decides
                    any(reader.finish())
            except _REQUEST_ERRORS:
                self._backoff.failures += 1
                await self._backoff.pause()
            else:
                break
        return bool(reader.counter.has_reached)

    async def _read_to_end(self, run: Run, *, is_previous: bool = False) -> AsyncGenerator[LogLine, None]:
        """Yield the existing lines after the last line read."""
        is_whole = False
        while not is_whole:
            lines, is_whole = await self._portion(run, is_previous=is_previous)
            for line in lines:
                yield line

    # --- one request

    async def _portion(self, run: Run, *, is_previous: bool = False) -> tuple[list[LogLine], bool]:
        """Return the next existing lines, and whether these are all.

        If the connection breaks, returns the lines that were received: they count as read, and more will be requested.
        """
        lines_read, size = [], 0
        try:
            async with (
                self._client.log_streams.reading(),
                self._open(run, self._position.since(run), is_previous=is_previous) as chunks,
                aclosing(self._lines(run, chunks, is_previous=is_previous)) as lines,
            ):
                async for line in lines:
                    lines_read.append(line)
                    size += len(line.text) + _WEIGHT
                    if size >= _PORTION:
                        return lines_read, False
        except (*_REQUEST_ERRORS, _AnotherRun):
            if not lines_read:
                raise
            return lines_read, False
        return lines_read, True

    async def _lines(
        self, run: Run, chunks: AsyncGenerator[bytes, None], *, is_previous: bool = False
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the new lines of one response; notices of lost lines come before the lines that follow the gap."""
        since, expected, self._unfinished = self._position.since(run), self._position.expected(run), []
        reader = LogReader(run, since)
        async for line in self._all_of(run, reader, chunks):
            if expected is not None and reader.counter.has_reached is False:
                yield await self._rotation_notice(run, expected, line.timestamp, is_previous=is_previous)
            expected = None
            self._first_cursor = line.cursor if since is None and self._first_cursor is None else self._first_cursor
            self._position.take(line.cursor, is_unsteady=reader.counter.is_unsteady)
            self._backoff.failures = 0
            yield line
        self._is_uncertain = expected is not None and reader.counter.has_reached is None
        is_complete = self._has_all or is_previous or not run.ended
        if expected is not None and self._is_uncertain and not is_complete:
            yield await self._rotation_notice(run, expected, "its end")

    async def _all_of(
        self, run: Run, reader: LogReader, chunks: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[LogLine, None]:
        async for chunk in chunks:
            for line in reader.feed(chunk):
                yield line
        self._unfinished = list(reader.finish())
        for line in self._unfinished if run.ended else ():
            yield line

    def _open(self, run: Run, since: LogCursor | None, *, is_previous: bool = False, follow: bool = False) -> Any:
        query = {"container": run.container, "timestamps": "true"}
        query |= {"sinceTime": whole_second(since.timestamp)} if since else {}
        query |= {"previous": "true"} if is_previous else {}
        query |= {"follow": "true"} if follow else {}
        return self._client.stream(paths.pod_log(self._namespace, run.pod or self._name), silence=_SILENCE, **query)

    # --- lost lines

    async def _rotation_notice(self, run: Run, cursor: LogCursor, until: str, *, is_previous: bool = False) -> LogLine:
        """Return the notice that the lines after this cursor were rotated out.

        Raises:
            _AnotherRun: the response has the log of a later run, which cannot have the cursor's line.
        """
        if not is_previous and await self._replica.is_replaced(run):
            raise _AnotherRun
        return parse.rotated(self._name, cursor, until)

    def _notice_of_unread_run(self, pod: Manifest | None) -> Iterator[LogLine]:
        """Yield a notice if the last run was removed unread with its pod: the lines reported as its own are later."""
        run, first = self._position.last, self._first_cursor
        if run is None or first is None or (pod is not None and pod["metadata"]["uid"] == run.pod_uid):
            return
        self._first_cursor = None
        if self._replica.has_reported_end_before(run, first.timestamp):
            yield replace(parse.unread(self._name, run, first.timestamp), cursor=self._position.read or first)

    async def _loss_notice(self, run: Run) -> LogLine:
        """Return the notice that the end of a run is lost."""
        pod = await self._replica.pod()
        has_pod = pod is not None and pod["metadata"]["uid"] == run.pod_uid
        return parse.lost(self._name, self._position.since(run) or parse.start_of_run(run), has_pod=has_pod)
