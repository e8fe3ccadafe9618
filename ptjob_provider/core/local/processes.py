"""Find, end and measure the processes of jobs.

A job's processes carry a mark in their environment (`MARK`), which grandchildren inherit even if they leave their
process group. While the supervisor lives, every process of its job is its descendant, because it adopts orphans.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psutil

from ptjob_provider.core.history.peak_usage import PeakUsage, of_pods
from ptjob_provider.core.local.launch import MARK
from ptjob_provider.core.local.store import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ptjob_provider.core.local.store import JobFiles

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_TIMEOUT = 5.0

T = TypeVar("T")


def marked(mark: str, among: Iterable[psutil.Process] | None = None) -> list[psutil.Process]:
    """Return the living processes whose mark has this prefix, which names a job, a pod or a container."""
    candidates = psutil.process_iter() if among is None else among
    return [each for each in candidates if (_read(each.environ) or {}).get(MARK, "").startswith(mark)]


def descendants() -> list[psutil.Process]:
    """Return the living descendants of this process."""
    children = psutil.Process().children(recursive=True)
    return [each for each in children if _read(each.status) not in (None, psutil.STATUS_ZOMBIE)]


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill the processes; those that have ended are skipped, even if their pid was reused."""
    for process in processes:
        _read(process.kill)


def kill_all(find: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill the processes that `find` returns until it returns none, or `_KILL_TIMEOUT` has passed."""
    deadline = time.monotonic() + _KILL_TIMEOUT
    while (left := list(find())) and time.monotonic() < deadline:
        kill(left)
        time.sleep(0.01)


def adopt_orphans() -> None:
    """Make this process the parent of all orphaned descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; exit if it has ended. Call between fork and exec."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _read(query: Callable[[], T]) -> T | None:
    """Return the result of the query; None if the process has ended or belongs to another user."""
    with contextlib.suppress(psutil.Error):
        return query()
    return None


_PAUSES = (0.2, 5.0)
"""Seconds before the second sample, and the maximum between two samples; each pause is twice the previous one."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Combined usage of processes; shared memory counts for each of them.

    Attributes:
        seconds: CPU time, including ended children.
        memory: resident bytes.
        written: bytes written to disks; None if the kernel does not report them.
        began: monotonic time before `seconds` was read; this process may be suspended at any moment.
        ended: monotonic time after `seconds` was read.
    """

    seconds: float = 0.0
    memory: int = 0
    written: int | None = None
    began: float = 0.0
    ended: float = 0.0

    @classmethod
    def of(cls, mark: str, among: Iterable[psutil.Process]) -> Self | None:
        """Measure the processes whose mark has this prefix; None if none of them is alive."""
        pod = marked(mark, among)
        began = time.monotonic()
        times = [cpu for each in pod if (cpu := _read(each.cpu_times))]
        ended = time.monotonic()
        memory = sum(info.rss for each in pod if (info := _read(each.memory_info)))
        if not memory:
            return None
        written = [io.write_bytes for each in pod if hasattr(each, "io_counters") and (io := _read(each.io_counters))]
        return cls(
            seconds=sum(cpu.user + cpu.system + cpu.children_user + cpu.children_system for cpu in times),
            memory=memory,
            written=sum(written) if written else None,
            began=began,
            ended=ended,
        )

    def cores_since(self, before: Self | None) -> float | None:
        """Return the average number of cores used since an earlier sample, never too many.

        None without an earlier sample, or if the total has decreased because processes have ended.
        """
        if before is None or self.seconds < before.seconds:
            return None
        return (self.seconds - before.seconds) / (self.ended - before.began)


@dataclass
class UsageSampler:
    """Measures the pods of one job, rarely enough to cost little, and writes their peaks to a file.

    Args:
        job: the job's uid.
        files: the job's files.
    """

    job: str
    files: JobFiles
    _peaks: dict[str, tuple[str, PeakUsage]] = field(default_factory=dict)
    _before: dict[str, Load] = field(default_factory=dict)
    _now: dict[str, dict[str, Any]] = field(default_factory=dict)
    _pause: float = _PAUSES[0]
    _due: float = 0.0

    def sample(self, pods: Iterable[tuple[str, str]]) -> None:
        """Measure the running pods, given as replica and uid, if the next sample is due.

        A system error, such as a full disk, costs one sample, not the job.
        """
        running = list(pods)
        if time.monotonic() < self._due or not running:
            return
        with contextlib.suppress(OSError):
            among = descendants()
            for replica, uid in running:
                if load := Load.of(f"{self.job}/{uid}/", among):
                    self._add(replica, uid, load)
            self._pause = min(2 * self._pause, _PAUSES[1])
            self._due = time.monotonic() + self._pause
            peaks = {name: use.to_dict() for name, use in of_pods(self._peaks.values()).items()}
            write_json(self.files.usage, {name: {**use, **self._now.get(name, {})} for name, use in peaks.items()})

    def _add(self, replica: str, uid: str, load: Load) -> None:
        now = {"cpu": load.cores_since(self._before.get(uid)), "memory": load.memory, "disk": load.written}
        self._before[uid], self._now[replica] = load, {"cpu": now["cpu"], "memory": now["memory"]}
        _, peak = self._peaks.get(uid, (replica, PeakUsage()))
        self._peaks[uid] = replica, peak.with_sample(now)


def recorded_usage(files: JobFiles) -> dict[str, PeakUsage]:
    """Return the peaks that a job's supervisor has written, by replica."""
    recorded: dict[str, dict[str, Any]] = read_json(files.usage) or {}
    return {name: PeakUsage.from_dict(fields) for name, fields in recorded.items()}
