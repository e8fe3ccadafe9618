"""Follow one replica's log over the API server: every line once, in order, across restarts and new pods.

A *run* is one run of the training container; a restart of the container, or a new pod, begins the next run. Behaviour
of the kubelet on which this module relies (all tested, or read in its source):

- `sinceTime` is truncated to whole seconds, so that known lines are sent again; they are dropped by their cursors.
- A long line is sent whole, with the timestamp of its beginning.
- The headers of a response are sent before the first line, also of a container that has not written any.
- A follow stream ends when the container ends, when a proxy ends it, and after four hours.
- The status of a restarted container is up to a second late. A stream that is opened within this second has the next
  run's log, whose lines are reported as the ended run's. Once the status is up to date, both runs are read again, after
  a notice that says from which instant on lines may be repeated, and whether the node still has the earlier run's.
- A log is rotated at 10 MiB. An open stream continues in the new file; later requests get only the new file.

Only streams need one of the client's `log_streams`, for as long as a run lasts. A single request needs none, so that
readers never wait for a node that does not answer others.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec, JobNotFound
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.logs import parse, runs
from ptjob_provider.core.kubernetes.logs.parse import LogReader, NodeRefused, ReadPosition, whole_second
from ptjob_provider.core.kubernetes.logs.replica import LoggedReplica
from ptjob_provider.core.shared import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.informer.cache import JobCache
    from ptjob_provider.core.kubernetes.logs.runs import Run
    from ptjob_provider.core.logs import LogCursor, LogLine

_LONGEST_PAUSE = 30.0
"""Maximum seconds between tries to read from an unresponsive server."""

_SILENCE = 3600.0
"""Seconds without a line after which a stream is reopened. TCP keep-alive detects a dead connection within five
minutes, but not if a gateway answers its probes although the server is gone."""

_ANSWER = 10.0
"""Maximum seconds without a byte of a log that is read without a stream: its lines exist already."""

_TRIES = 8
"""Tries in a row to read the rest of an ended run, for about a minute if each fails at once."""

_FEW_TRIES = 5
"""The same for a one-off read: for some seconds."""

_REMOVED = "previous terminated container"
"""Part of the kubelet's answer if the node has removed the log of the previous run; a gateway's 400 is another one."""

_REQUEST_ERRORS = (ClusterUnavailable, InvalidSpec, JobNotFound, NodeRefused)
"""Errors of a log request after which the container's status decides whether it is retried."""


class _Lost(Exception):
    """The node no longer has the log."""


class ReplicaLog:
    """The log of one replica's training container."""

    def __init__(self, client: Client, cache: JobCache, ref: JobRef, replica: str) -> None:
        self._client = client
        self._replica = LoggedReplica(cache, ref, replica)
        self._namespace = ref.namespace
        self._name = replica
        self._position = ReadPosition()
        self._backoff = Backoff(1.0, _LONGEST_PAUSE)
        self._has_all = False  # the last stream ended by itself, so that all lines were read
        self._is_uncertain = False  # the last response neither had the expected line nor a later one
        self._unfinished: list[LogLine] = []  # the last line of the last response, without its line end

    async def follow(self, since: LogCursor | None) -> AsyncGenerator[LogLine, None]:
        """Yield the lines after the cursor until the container will not run again; see `Backend.logs`."""
        self._position.read = since
        while True:
            pod = await self._replica.pod()
            run = self._replica.newest(pod)
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
            async for line in self._rest(run, tries=_FEW_TRIES):
                yield line
        except _Lost as error:
            why = error.__cause__ or "the pod is gone, and its log with it"
            raise JobNotFound(f"{self._replica}: {why}") from error

    # --- one run

    async def _follow_run(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield a run's lines until it has ended, and a notice if its last lines are lost."""
        self._has_all, self._unfinished = False, []
        if not run.ended:
            async for line in self._while_running(run):
                yield line
        try:
            async for line in self._rest(run):
                yield line
        except _Lost:
            for line in self._unfinished:
                yield line
            if not self._has_all or not self._replica.has_reported_end(run):
                yield parse.lost(self._name, self._position.since(run) or parse.start_of_run(run))
        self._position.last = run

    async def _while_running(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield lines until the run has ended, over a stream as soon as one is free; a notice if none is."""
        has_notice = False
        while True:
            async with self._stream_permit() as acquiring:
                if not acquiring.done() and not has_notice:
                    yield parse.queued(self._name, self._position.since(run) or parse.start_of_run(run))
                    has_notice = True
                if not acquiring.done():
                    await self._replica.ends_before(run, asyncio.wait({acquiring}))
                if not acquiring.done():
                    return
                async for line in self._stream(run):
                    yield line
            if await self._replica.has_ended(run) or await self._replica.ends_before(run, self._backoff.pause()):
                return

    @asynccontextmanager
    async def _stream_permit(self) -> AsyncIterator[asyncio.Task[bool]]:
        """Ask for one of the client's streams, and yield the task that gets it, which is done if one was free."""
        acquiring = asyncio.create_task(self._client.log_streams.acquire())
        try:
            await asyncio.sleep(0)
            yield acquiring
        finally:
            if not acquiring.cancel():  # without an await, at which another cancellation would keep the stream
                self._client.log_streams.release()

    async def _stream(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of one follow stream; an incomplete last line is left for the next stream."""
        self._has_all = False
        with suppress(*_REQUEST_ERRORS):  # the pod's status decides whether the stream is reopened
            async for line in self._read(run, follow=True):
                yield line
            self._has_all = not self._is_uncertain
        self._backoff.failures += 1

    async def _rest(self, run: Run, *, tries: int = _TRIES) -> AsyncGenerator[LogLine, None]:
        """Yield the existing lines after the last one read; of an ended run also a last line without a line end.

        An answer that there is no log is doubted, too: a gateway may have sent it.

        Raises:
            _Lost: the node no longer has the log.
            ClusterUnavailable: the server was unavailable for too long.
        """
        failed, last_error = 0, None
        while failed < tries and (kept := runs.kept(run, await self._replica.pod())) is not None:
            (newest, is_previous), before = kept, self._position.read
            try:
                async for line in self._read(newest, is_previous=is_previous):
                    yield line
            except _REQUEST_ERRORS as error:
                last_error = error
                if is_previous and (isinstance(error, NodeRefused) or _REMOVED in str(error)):
                    break
                failed = failed + 1 if self._position.read is before else 1
                self._backoff.failures += 1
                await self._backoff.pause()
            else:
                return
        if isinstance(last_error, ClusterUnavailable):
            raise last_error
        raise _Lost from last_error

    async def _missed_before(self, pod: Manifest, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield what was missed before this run: unread lines of the previous run, and a notice for each restart.

        The node keeps no older runs than the previous one.
        """
        before = runs.before(pod, run)
        oldest, read = before or run, self._position.read or self._replica.start_of_pod(pod)
        if await self._is_mistaken(before, run):
            yield parse.repeated(self._name, read, oldest)
            self._position.read, self._position.last, read = None, None, parse.start_of_run(oldest)
        has_notice = parse.is_skipped(read, self._position.last, oldest)
        if has_notice:
            yield parse.skipped(self._name, read, oldest)
        if before is not None and not self._position.has_read(before):
            try:
                async for line in self._rest(before):
                    yield line
                has_notice = False
            except _Lost:
                yield parse.skipped(self._name, self._position.since(before) or parse.start_of_run(before), run)
                has_notice = True
        if run.restart_count and self._position.since(run) is None and not has_notice:
            yield parse.started_again(self._name, self._position.read or read, run)

    async def _is_mistaken(self, before: Run | None, run: Run) -> bool:
        """Return whether the last line was reported as an earlier run's than the run that wrote it.

        The start of a run is known to the second, so that its log alone shows whether a line is the previous run's.
        """
        if before is None or self._position.may_be_of(before) or not self._position.may_be_of(run):
            return self._position.may_be_of(before or run)
        position, self._position, self._is_uncertain = self._position, copy(self._position), True
        with suppress(_Lost):
            async for _ in self._rest(before):
                pass
        self._position = position
        return self._is_uncertain

    # --- one request

    async def _read(
        self, run: Run, *, is_previous: bool = False, follow: bool = False
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the lines after the last one read, of one response."""
        since = self._position.since(run)
        query = {"container": run.container, "timestamps": "true"}
        query |= {"sinceTime": whole_second(since.timestamp)} if since else {}
        query |= {"previous": "true"} if is_previous else {}
        query |= {"follow": "true"} if follow else {}
        path, silence = paths.pod_log(self._namespace, run.pod or self._name), _SILENCE if follow else _ANSWER
        async with (
            self._client.stream(path, silence=silence, **query) as chunks,
            aclosing(self._lines(run, chunks, is_previous=is_previous)) as lines,
        ):
            async for line in lines:
                yield line

    async def _lines(
        self, run: Run, chunks: AsyncGenerator[bytes, None], *, is_previous: bool = False
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the new lines of one response; notices of lost lines come before the lines that follow the gap."""
        since, self._unfinished = self._position.since(run), []
        reader = LogReader(run, since)
        expected = since if since and since.ordinal >= 0 else None  # a notice's cursor is that of no line
        async for line in self._all_of(run, reader, chunks):
            if expected is not None and reader.counter.has_reached is False:
                yield await self._rotation_notice(run, expected, line.timestamp, is_previous=is_previous)
            expected = None
            self._position.read = line.cursor
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

    # --- lost lines

    async def _rotation_notice(self, run: Run, cursor: LogCursor, until: str, *, is_previous: bool = False) -> LogLine:
        """Return the notice that the lines after this cursor were rotated out.

        Raises:
            NodeRefused: the response has the log of a later run, which cannot have the cursor's line.
        """
        if not is_previous and await self._replica.is_replaced(run):
            raise NodeRefused("the log of its next run came instead")
        return parse.rotated(self._name, cursor, until)
