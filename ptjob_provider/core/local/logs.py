"""Follow one replica's log files: every line once, in order, across restarts and new pods.

The job's state only shows whether more lines will come; `logs` assigns cursors. A state read before reading to the end
of a file is valid for the content found: the supervisor reports a run's end after its log is complete.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core.local.objects import is_supervised
from ptjob_provider.core.local.operator import CONTAINER, ROLE_LABEL, defaulted, is_finished
from ptjob_provider.core.local.store import JobState
from ptjob_provider.core.logs import CriReader, LineCounter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.store import JobFiles
    from ptjob_provider.core.logs import LogCursor, LogLine

_INTERVAL = 0.1
_CHUNK = 64 * 1024


@dataclass(frozen=True, kw_only=True, order=True)
class Run:
    """One run of the container: the number of its pod among those of the name, and its restart count."""

    incarnation: int
    restart: int
    pod_uid: str
    path: Path


class ReplicaLog:
    """The log of one replica of the job with this uid, of the training or another container."""

    def __init__(self, files: JobFiles, pod: str, *, job_uid: str, container: str = CONTAINER) -> None:
        self._files = files
        self._pod = pod
        self._job_uid = job_uid
        self._container = container
        self._state = JobState(files)

    async def lines(self, *, since: LogCursor | None, follow: bool) -> AsyncGenerator[LogLine, None]:
        """Yield the lines after the cursor; see `Backend.logs`."""
        last: Run | None = None
        while True:
            is_over = not follow or self._is_over()
            runs = [run for run in self._runs(since) if last is None or run > last]
            for run in runs:
                async for line in self._read(run, since=since, follow=follow):
                    yield line
                last = run
            if is_over and not runs:
                return
            if not runs:
                await asyncio.sleep(_INTERVAL)

    async def _read(self, run: Run, *, since: LogCursor | None, follow: bool) -> AsyncGenerator[LogLine, None]:
        counter = LineCounter(pod_uid=run.pod_uid, container=self._container, restart_count=run.restart, since=since)
        reader = CriReader()
        try:
            file = run.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            while True:
                is_over = self._has_ended(run)
                while chunk := file.read(_CHUNK):
                    for line in counter.lines(reader.feed(chunk)):
                        yield line
                    await asyncio.sleep(0)
                if is_over:
                    for line in counter.lines(reader.finish()):
                        yield line
                if is_over or not follow:
                    return
                await asyncio.sleep(_INTERVAL)

    def _runs(self, since: LogCursor | None) -> list[Run]:
        runs = sorted(self._found())
        if since is None:
            return runs
        first = [run for run in runs if run.pod_uid == since.pod_uid and run.restart >= since.restart_count]
        return [run for run in runs if run >= first[0]] if first else runs

    def _found(self) -> Iterator[Run]:
        for directory in _children(self._files.logs_of(self._pod)):
            number, _, pod_uid = directory.name.partition("_")
            for file in _children(directory / self._container):
                yield Run(incarnation=int(number), restart=int(file.stem), pod_uid=pod_uid, path=file)

    def _has_ended(self, run: Run) -> bool:
        if not self._is_there():
            return True
        pod = self._find(uid=run.pod_uid)
        return pod is None or _has_run_ended(pod, self._container, run.restart)

    def _is_over(self) -> bool:
        if not self._is_there():
            return True
        pod, finished = self._find(), is_finished(self._state.state.get("status", {}))
        if pod is None:
            return finished
        phase = pod["status"]["phase"]
        if self._container != CONTAINER and _has_succeeded(pod, self._container):
            return True
        return phase == "Succeeded" or (phase == "Failed" and (finished or self._policy(pod) == "Never"))

    def _is_there(self) -> bool:
        supervised = is_supervised(self._files)
        self._state.refresh()
        job = self._state.job
        return supervised and job is not None and job["metadata"]["uid"] == self._job_uid

    def _find(self, uid: str | None = None) -> Manifest | None:
        pods = self._state.state.get("pods", ())
        metas = ((pod, pod["metadata"]) for pod in pods)
        return next((pod for pod, meta in metas if meta["name"] == self._pod and uid in (None, meta["uid"])), None)

    def _policy(self, pod: Manifest) -> str:
        assert self._state.job is not None  # noqa: S101 - checked by `_is_there`
        role = pod["metadata"]["labels"][ROLE_LABEL].capitalize()
        return str(defaulted(self._state.job)["spec"]["pytorchReplicaSpecs"][role]["restartPolicy"])


def _has_run_ended(pod: Manifest, name: str, restart: int) -> bool:
    for container in _statuses(pod):
        if container["name"] == name:
            if container["restartCount"] != restart:
                return bool(container["restartCount"] > restart)
            return "terminated" in container["state"] or _waits_after_end(container)
    return False


def _has_succeeded(pod: Manifest, name: str) -> bool:
    """Return whether the init container has succeeded, so that it is not restarted."""
    ended = [each["state"].get("terminated") or {} for each in _statuses(pod) if each["name"] == name]
    return any(each.get("exitCode") == 0 for each in ended)


def _statuses(pod: Manifest) -> list[Manifest]:
    status = pod["status"]
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _waits_after_end(container: Manifest) -> bool:
    return "waiting" in container["state"] and "terminated" in container["lastState"]


def _children(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
