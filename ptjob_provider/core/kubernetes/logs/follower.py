"""Follow one replica's log over the API server: every line once, in order, across restarts and new pods.

The kubelet's behaviour (all tested, or read in its source): `sinceTime` is truncated to whole seconds, so known lines
are requested again and dropped by their cursor; a long line comes whole with the timestamp of its beginning; a follow
stream ends when the container ends, when a proxy ends it, and after four hours; the status of a restarted container is
up to a second late, so a stream opened in that second belongs to the next run, and a line's cursor is carried over to
that run. A log is rotated at 10 MiB: a stream continues in the new file, and later requests get only that one.
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
"""Seconds without a line after which a stream is reopened. The system's own probes detect a dead connection in five
minutes; this is for gateways that answer the probes for a server that is gone."""

_TRIES = 8
"""Tries to read the rest of a finished run: for about a minute."""

_FEW_TRIES = 5
"""The same for one-off reads: for some seconds."""

_TRIES_OF_A_REFUSAL = 2
"""The same after the answer that there is no log: it may come from a gateway."""

_PORTION = 1024 * 1024
"""Characters read at once without a stream; the rest comes with the next portion."""

_WEIGHT = 64
"""Additional characters charged per line: a million empty ones are no small portion."""

_REFUSED = (ClusterUnavailable, InvalidSpec, JobNotFound, NodeRefused)
"""Errors of log requests while the container runs; its status decides about a retry."""


class _AnotherRun(Exception):
    """The served log belongs to a later run that the status does not show yet."""


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
        self._unfinished: list[LogLine] = []
        self._first: LogCursor | None = None
        self._belated: LogCursor | None = None
        self._unchecked: Run | None = None
        self._has_all = False
        self._is_rereading = False
        self._is_uncertain = False
        self._backoff = Backoff(1.0, _LONGEST_PAUSE)

    async def follow(self, since: LogCursor | None) -> AsyncGenerator[LogLine, None]:
        """Yield the lines after the cursor until the container will write no more; see `Backend.logs`."""
        self._position.read = since
        while True:
            pod = await self._replica.pod()
            run = self._replica.newest(pod)
            if pod is not None and run is not None and not run.is_same(self._position.last):
                async for line in self._missed(pod, run):
                    yield line
                async for line in self._follow_run(run):
                    yield line
            elif await self._replica.is_over(pod):
                for line in self._never_read(pod):
                    yield line
                return
            else:
                await self._replica.change()

    async def snapshot(self, since: LogCursor | None) -> AsyncGenerator[LogLine, None]:
        """Yield the existing lines after the cursor.

        Raises:
            JobNotFound: the pod is gone with its log; or the job is, and its pod was not observed running.
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
        async for line in self._missed(pod, run):
            yield line
        try:
            async for line in self._read_now(run):
                yield line
        except _AnotherRun:
            return
        except (InvalidSpec, NodeRefused) as refused:  # 400: its log was removed
            raise JobNotFound(f"{self._replica}: {refused}") from refused

    # --- one run

    async def _read_now(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield the existing lines; retry while the server is briefly unavailable."""
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
        """Yield a run's lines until it has ended and all were read, or a notice about lost ones."""
        self._begin_run()
        if not run.ended:
            async with self._client.log_streams.slot() as slot:
                async for line in self._while_it_lasts(run, slot):
                    yield line
        try:
            async for line in self._rest(run):
                yield line
        except _Lost:
            for line in self._unfinished:
                yield line
            if self._is_rereading or not self._has_all or not self._replica.has_reported_end(run):
                yield await self._loss(run)
            self._first = None if self._is_rereading else self._first
        self._position.last, self._unchecked = run, run if self._first is not None else None

    def _begin_run(self) -> None:
        self._has_all, self._is_rereading, self._unfinished, self._first, self._belated = False, False, [], None, None

    async def _while_it_lasts(self, run: Run, slot: StreamSlot) -> AsyncGenerator[LogLine, None]:
        """Yield lines from a stream or, while none is free, in turns."""
        is_behind = False
        while slot.has_stream or not await self._replica.ends_before(run, slot.turn(is_behind=is_behind)):
            if not slot.has_stream:
                lines, is_behind = await self._turn(run)
                for line in lines:
                    yield line
                continue
            async for line in self._stream(run):
                yield line
            if await self._replica.has_ended(run) or await self._replica.ends_before(run, self._backoff.pause()):
                return

    async def _stream(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield lines of one follow stream; an incomplete last line is left for the next one."""
        self._has_all = False
        with suppress(*_REFUSED, _AnotherRun):  # the status decides whether to reopen it
            async with (
                self._open(run, self._position.since(run), follow="true") as chunks,
                aclosing(self._lines(run, chunks)) as lines,
            ):
                async for line in lines:
                    yield line
            self._has_all = not self._is_uncertain
        self._backoff.failures += 1

    async def _turn(self, run: Run) -> tuple[list[LogLine], bool]:
        """Return the next lines, and whether more exist already."""
        try:
            lines, is_whole = await self._portion(run)
        except (*_REFUSED, _AnotherRun):
            return [], False
        return lines, not is_whole

    async def _rest(self, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield the rest of a finished run after the last line read, and its unfinished last line.

        Raises:
            _Lost: the node no longer has it.
        """
        refused: Exception | None = None
        for _ in range(_TRIES):
            kept = runs.kept(run, await self._replica.pod())
            if kept is None:
                break
            try:
                async for line in self._late(*kept):
                    yield line
            except (*_REFUSED, _AnotherRun) as error:
                refused = error
                if kept[1] and isinstance(error, InvalidSpec | NodeRefused):
                    break  # the node has removed it
                self._backoff.failures += 1
                await self._backoff.pause()
            else:
                return
        if isinstance(refused, ClusterUnavailable):
            raise refused
        raise _Lost from refused

    async def _missed(self, pod: Manifest, run: Run) -> AsyncGenerator[LogLine, None]:
        """Yield the unread rest of the previous run; the node keeps no older ones."""
        for line in self._never_read(pod):
            yield line
        before = runs.before(pod, run)
        for line in self._removed(pod, run, before):
            yield line
        is_read = before is not None and self._position.has_read(before)
        if before is None or (is_read and not before.is_same(self._unchecked)):
            return
        try:
            async for line in self._rest(before):
                yield line
            self._unchecked = None
        except _Lost:
            if self._is_rereading:
                yield await self._loss(before)
            elif not is_read:
                yield parse.skipped(self._name, self._position.since(before) or parse.start_of_run(before), run)

    async def _late(self, run: Run, is_previous: bool) -> AsyncGenerator[LogLine, None]:  # noqa: FBT001 - of a pair
        """Yield a run after its end; from its start where lines of the next run were taken for its first ones.

        This is only certain for the node's previous run: if the newest run in the status is over, the served log may
        already be the next run's, which the status does not show yet.
        """
        mistaken, read = (self._first or self._position.cursor_in(run)) if is_previous else None, self._position.read
        if mistaken is None or not await self._is_of_a_later_run(mistaken, run):
            async for line in self._read_to_end(run, is_previous=is_previous):
                yield line
            self._first = None if is_previous else self._first
            return
        self._is_rereading = True
        self._first, later = mistaken, replace(read or mistaken, restart_count=run.restart_count + 1)
        last: LogLine | None = None
        self._position.read = self._belated
        try:
            async for line in self._read_to_end(run, is_previous=True):
                if self._belated is None:
                    self._belated = parse.start_of_run(run)
                    yield parse.belated(self._name, self._belated, mistaken.timestamp)
                if last is not None:
                    self._belated = last.cursor
                    yield last
                last = line
        finally:
            self._position.read = later
        self._first, self._is_rereading = None, False
        if last is not None:
            yield replace(last, cursor=later)  # a reader that resumes after it has had the later lines

    async def _is_of_a_later_run(self, cursor: LogCursor, run: Run) -> bool:
        """Return whether a line reported as the previous run's cannot be; its log decides within the same second."""
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
        """Return the next existing lines, and whether they are all.

        Lines received before the connection broke are returned: they count as read, and the rest is requested.
        """
        taken, size = [], 0
        query = {"previous": "true"} if is_previous else {}
        try:
            async with (
                self._client.log_streams.reading(),
                self._open(run, self._position.since(run), **query) as chunks,
                aclosing(self._lines(run, chunks, is_previous=is_previous)) as lines,
            ):
                async for line in lines:
                    taken.append(line)
                    size += len(line.text) + _WEIGHT
                    if size >= _PORTION:
                        return taken, False
        except (*_REFUSED, _AnotherRun):
            if not taken:
                raise
            return taken, False
        return taken, True

    async def _lines(
        self, run: Run, chunks: AsyncGenerator[bytes, None], *, is_previous: bool = False
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the new lines of one response, preceded by a notice if lines before them are lost."""
        since, expected, self._unfinished = self._position.since(run), self._position.expected(run), []
        reader = LogReader(run, since)
        if since is None or self._position.cursor_in(run) is not None:  # only a carried-over cursor is uncertain
            self._unchecked = None
        async for line in self._all_of(run, reader, chunks):
            if expected is not None and reader.counter.has_reached is False:
                yield await self._rotated(run, expected, line.timestamp, is_previous=is_previous)
            for notice in self._misattributed(run, reader):
                yield notice
            expected = None
            self._first = line.cursor if since is None and self._first is None else self._first
            self._position.take(line.cursor, is_unsteady=reader.counter.is_unsteady)
            self._backoff.failures = 0
            yield line
        for notice in self._misattributed(run, reader):
            yield notice
        self._is_uncertain = expected is not None and reader.counter.has_reached is None
        is_complete = self._has_all or is_previous or not run.ended
        if expected is not None and self._is_uncertain and not is_complete:
            yield await self._rotated(run, expected, "its end")

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

    async def _rotated(self, run: Run, cursor: LogCursor, until: str, *, is_previous: bool = False) -> LogLine:
        """Return the notice that the lines after this cursor are gone.

        Raises:
            _AnotherRun: the served log is a later run's, which cannot contain this cursor's line.
        """
        if not is_previous and await self._replica.is_replaced(run):
            raise _AnotherRun
        return parse.rotated(self._name, cursor, until)

    def _misattributed(self, run: Run, reader: LogReader) -> Iterator[LogLine]:
        """Yield a notice that the previous run was never read, if lines reported as its own are this run's."""
        if self._unchecked is None or self._position.read is None or reader.counter.has_reached is None:
            return
        unread, self._unchecked = parse.start_of_run(self._unchecked), None
        if reader.counter.has_reached:
            yield replace(parse.skipped(self._name, unread, run), cursor=self._position.read)

    def _removed(self, pod: Manifest, run: Run, before: Run | None) -> Iterator[LogLine]:
        """Yield a notice that runs before the oldest one on the node were removed, or may have been."""
        begin, oldest = self._replica.start_of_pod(pod), before or run
        read = self._position.read or begin
        if parse.is_skipped(read, self._position.last, oldest):
            yield parse.skipped(self._name, read, oldest)
        elif before is None and self._position.last is None and parse.is_mislabelled(read, run):
            yield parse.mislabelled(self._name, read, run, begin)

    def _never_read(self, pod: Manifest | None) -> Iterator[LogLine]:
        """Yield a notice that a deleted pod's run was never read, if the next one's lines were reported as its own."""
        run, first = self._unchecked, self._first
        if run is None or first is None or (pod is not None and pod["metadata"]["uid"] == run.pod_uid):
            return
        self._unchecked = None
        if self._replica.has_reported_end_before(run, first.timestamp):
            yield replace(parse.mistaken(self._name, run, first.timestamp), cursor=self._position.read or first)

    async def _loss(self, run: Run) -> LogLine:
        """Return the notice that the end of a run is lost, up to the next run if that was reported already."""
        pod = await self._replica.pod()
        is_there = pod is not None and pod["metadata"]["uid"] == run.pod_uid
        newest, cursor = (
            self._replica.newest(pod) if is_there else None,
            self._position.since(run) or parse.start_of_run(run),
        )
        if self._is_rereading and newest is not None and not newest.is_same(run):
            notice = parse.skipped(self._name, cursor, newest)
        else:
            notice = parse.lost(self._name, cursor, has_pod=is_there)
        return replace(notice, cursor=self._position.behind(run) or notice.cursor)
