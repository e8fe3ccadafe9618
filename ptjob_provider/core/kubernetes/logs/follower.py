"""Follow one replica's log over the API server: every line once, in order, across restarts and new pods.

A *run* is one run of the training container; a restart of the container, or a new pod, begins the next run. Behaviour
of the kubelet on which this module relies (all tested, or read in its source):

- `sinceTime` is truncated to whole seconds, so that known lines are sent again; they are dropped by their cursors.
- A long line is sent whole, with the timestamp of its beginning.
- A follow stream ends when the container ends, when a proxy ends it, and after four hours.
- The status of a restarted container is up to a second late. A stream that is opened within this second has the next
  run's log, whose lines are reported as the ended run's; when the status is up to date, the last cursor is carried over
  to the run that wrote the line.
- A log is rotated at 10 MiB. An open stream continues in the new file; later requests get only the new file.
"""

from __future__ import annotations

from collections import deque
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
    from ptjob_provider.core.kubernetes.informer.cache import JobCache
    from ptjob_provider.core.kubernetes.logs.runs import Run
    from ptjob_provider.core.kubernetes.logs.streams import StreamSlot
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
        self._first_cursor: LogCursor | None = None  # of the run's first line, which the next run may have written
        self._unchecked_run: Run | None = None  # the last run, if the next run may have written all its lines
        self._is_rereading = False  # the next run has written them: the run is read from its beginning
        self._reread_cursor: LogCursor | None = None  # of the last line that was read so

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
                for line in self._notice_of_unread_run(pod):
                    yield line
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
        self._begin_run()
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
            if self._is_rereading or not self._has_all or not self._replica.has_reported_end(run):
                yield await self._loss_notice(run)
            self._first_cursor = None if self._is_rereading else self._first_cursor
        self._position.last, self._unchecked_run = run, run if self._first_cursor is not None else None

    def _begin_run(self) -> None:
        self._has_all, self._unfinished = False, []
        self._is_rereading, self._first_cursor, self._reread_cursor = False, None, None

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
                self._open(run, self._position.since(run), follow="true") as chunks,
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
            try:
                async for line in self._after_end(*kept):
                    yield line
            except (*_REQUEST_ERRORS, _AnotherRun) as error:
                last_error = error
                if kept[1] and isinstance(error, InvalidSpec | NodeRefused):
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
        for line in self._notice_of_unread_run(pod):
            yield line
        before = runs.before(pod, run)
        for line in self._notice_of_removed_runs(pod, run, before):
            yield line
        is_read = before is not None and self._position.has_read(before)
        if before is None or (is_read and not before.is_same(self._unchecked_run)):
            return
        try:
            async for line in self._rest(before):
                yield line
            self._unchecked_run = None
        except _Lost:
            if self._is_rereading:
                yield await self._loss_notice(before)
            elif not is_read:
                yield parse.skipped(self._name, self._position.since(before) or parse.start_of_run(before), run)

    async def _after_end(self, run: Run, is_previous: bool) -> AsyncGenerator[LogLine, None]:  # noqa: FBT001 - of a pair
        """Yield the unread lines of an ended run; all its lines if lines of the next run were reported as its own.

        Only the log of the previous run certainly belongs to this run. The log of the newest run in the status may
        already be the next run's, which the status does not show yet.
        """
        read = self._position.read
        mistaken = (self._first_cursor or self._position.cursor_in(run)) if is_previous else None
        if mistaken is None or not await self._is_of_a_later_run(mistaken, run):
            async for line in self._read_to_end(run, is_previous=is_previous):
                yield line
            self._first_cursor = None if is_previous else self._first_cursor
            return
        self._is_rereading = True
        self._first_cursor, later = mistaken, replace(read or mistaken, restart_count=run.restart_count + 1)
        last: LogLine | None = None
        self._position.read = self._reread_cursor
        try:
            async for line in self._read_to_end(run, is_previous=True):
                if self._reread_cursor is None:
                    self._reread_cursor = parse.start_of_run(run)
                    yield parse.belated(self._name, self._reread_cursor, mistaken.timestamp)
                if last is not None:
                    self._reread_cursor = last.cursor
                    yield last
                last = line
        finally:
            self._position.read = later
        self._first_cursor, self._is_rereading = None, False
        if last is not None:
            yield replace(last, cursor=later)  # a reader that resumes here has received the next run's lines before

    async def _is_of_a_later_run(self, cursor: LogCursor, run: Run) -> bool:
        """Return whether a line that was reported as the previous run's was written by a later run.

        If the line has the second in which the run ended, its presence in the run's log decides.
        """
        if run.was_over_before(cursor.timestamp) or not run.may_be_over_before(cursor.timestamp):
            return run.was_over_before(cursor.timestamp)
        reader = LogReader(run, cursor)
        async with self._client.log_streams.reading(), self._open(run, cursor, previous="true") as chunks:
            async for chunk in chunks:
                deque(reader.feed(chunk), maxlen=0)
        deque(reader.finish(), maxlen=0)
        return reader.counter.has_reached is not True

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
        query = {"previous": "true"} if is_previous else {}
        try:
            async with (
                self._client.log_streams.reading(),
                self._open(run, self._position.since(run), **query) as chunks,
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
        if since is None or self._position.cursor_in(run) is not None:  # only a carried-over cursor needs the check
            self._unchecked_run = None
        async for line in self._all_of(run, reader, chunks):
            if expected is not None and reader.counter.has_reached is False:
                yield await self._rotation_notice(run, expected, line.timestamp, is_previous=is_previous)
            for notice in self._notice_of_unread_previous(run, reader):
                yield notice
            expected = None
            self._first_cursor = line.cursor if since is None and self._first_cursor is None else self._first_cursor
            self._position.take(line.cursor, is_unsteady=reader.counter.is_unsteady)
            self._backoff.failures = 0
            yield line
        for notice in self._notice_of_unread_previous(run, reader):
            yield notice
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

    def _open(self, run: Run, since: LogCursor | None, **query: str) -> Any:
        first = {"sinceTime": whole_second(since.timestamp)} if since else {}
        return self._client.stream(
            paths.pod_log(self._namespace, run.pod or self._name),
            silence=_SILENCE,
            container=run.container,
            timestamps="true",
            **first,
            **query,
        )

    # --- lost lines

    async def _rotation_notice(self, run: Run, cursor: LogCursor, until: str, *, is_previous: bool = False) -> LogLine:
        """Return the notice that the lines after this cursor were rotated out.

        Raises:
            _AnotherRun: the response has the log of a later run, which cannot have the cursor's line.
        """
        if not is_previous and await self._replica.is_replaced(run):
            raise _AnotherRun
        return parse.rotated(self._name, cursor, until)

    def _notice_of_unread_previous(self, run: Run, reader: LogReader) -> Iterator[LogLine]:
        """Yield a notice that the previous run was never read, if the lines reported as its own are this run's."""
        if self._unchecked_run is None or self._position.read is None or reader.counter.has_reached is None:
            return
        unread, self._unchecked_run = parse.start_of_run(self._unchecked_run), None
        if reader.counter.has_reached:
            yield replace(parse.skipped(self._name, unread, run), cursor=self._position.read)

    def _notice_of_removed_runs(self, pod: Manifest, run: Run, before: Run | None) -> Iterator[LogLine]:
        """Yield a notice if runs before the oldest one on the node were removed, or may have been."""
        begin, oldest = self._replica.start_of_pod(pod), before or run
        read = self._position.read or begin
        if parse.is_skipped(read, self._position.last, oldest):
            yield parse.skipped(self._name, read, oldest)
        elif before is None and self._position.last is None and parse.is_mislabelled(read, run):
            yield parse.mislabelled(self._name, read, run, begin)

    def _notice_of_unread_run(self, pod: Manifest | None) -> Iterator[LogLine]:
        """Yield a notice that a deleted pod's run was never read, if lines of the next run were reported as its own."""
        run, first = self._unchecked_run, self._first_cursor
        if run is None or first is None or (pod is not None and pod["metadata"]["uid"] == run.pod_uid):
            return
        self._unchecked_run = None
        if self._replica.has_reported_end_before(run, first.timestamp):
            yield replace(parse.mistaken(self._name, run, first.timestamp), cursor=self._position.read or first)

    async def _loss_notice(self, run: Run) -> LogLine:
        """Return the notice that the end of a run is lost; it names the next run if lines of that were read before."""
        pod = await self._replica.pod()
        has_pod = pod is not None and pod["metadata"]["uid"] == run.pod_uid
        newest = self._replica.newest(pod) if has_pod else None
        cursor = self._position.since(run) or parse.start_of_run(run)
        if self._is_rereading and newest is not None and not newest.is_same(run):
            notice = parse.skipped(self._name, cursor, newest)
        else:
            notice = parse.lost(self._name, cursor, has_pod=has_pod)
        return replace(notice, cursor=self._position.behind(run) or notice.cursor)
