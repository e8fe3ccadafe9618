"""Measure the usage of a job's processes by the kernel's counters; the supervisor writes it to a file.

Counts all processes of a pod, including descendants. Shared memory counts for each process. There is no separate
network to measure.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.history.peak_usage import PeakUsage, of_pods
from ptjob_provider.core.local import processes
from ptjob_provider.core.local.store import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from ptjob_provider.core.local.processes import ProcessId
    from ptjob_provider.core.local.store import JobFiles

_PAUSES = (0.2, 5.0)
"""Seconds until the second sample, and the maximum between two: each pause is twice the one before."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_KIBIBYTE = 1024


@dataclass(frozen=True, kw_only=True)
class Load:
    """Combined usage of processes.

    Attributes:
        seconds: of CPU, including ended children.
        memory: resident bytes now.
        highest: the peak of any single one.
        written: bytes sent to disks, including ended children; None if the kernel does not report it.
        began: before the seconds were read, by the monotonic clock: the reader may be suspended at any moment.
        ended: after they were read.
    """

    seconds: float = 0.0
    memory: int = 0
    highest: int = 0
    written: int | None = None
    began: float = 0.0
    ended: float = 0.0

    @classmethod
    def of(cls, pod: str, among: Iterable[ProcessId] | None = None) -> Self | None:
        """Measure a pod's processes, by the prefix of their mark; None if none is alive."""
        pids = [process.pid for process in processes.marked(pod, among=among)]
        began = time.monotonic()
        stats = [fields for pid in pids if (fields := _stat(pid))]
        ended = time.monotonic()
        memory = sum(int(fields[21]) for fields in stats) * _PAGE
        if not memory:
            return None
        known = [count for pid in pids if (count := _number(pid, "io", "write_bytes:")) is not None]
        return cls(
            seconds=sum(int(ticks) for fields in stats for ticks in fields[11:15]) / _TICKS,
            memory=memory,
            highest=max((_number(pid, "status", "VmHWM:") or 0 for pid in pids), default=0) * _KIBIBYTE,
            written=sum(known) if known else None,
            began=began,
            ended=ended,
        )

    def cores_since(self, before: Self | None) -> float | None:
        """Return the cores used since an earlier sample: never more than were used.

        None without one, or if ended processes have taken more with them than was used since.
        """
        if before is None or self.seconds < before.seconds:
            return None
        return (self.seconds - before.seconds) / (self.ended - before.began)


@dataclass
class Meter:
    """Samples the pods of one job, rarely enough to cost nothing.

    Args:
        job: its uid.
        files: where the usage is written.
    """

    job: str
    files: JobFiles
    _uses: dict[str, tuple[str, PeakUsage]] = field(default_factory=dict)
    _before: dict[str, Load] = field(default_factory=dict)
    _pause: float = _PAUSES[0]
    _due: float = 0.0

    def look(self, pods: Iterable[tuple[str, str]]) -> None:
        """Sample the running ones, replica and uid of each, if it is time to.

        A system error, such as a full disk, costs a sample and not the job.
        """
        now, running = time.monotonic(), list(pods)
        if now < self._due or not running:
            return
        with contextlib.suppress(OSError):
            self._measure(running)

    def _measure(self, running: Iterable[tuple[str, str]]) -> None:
        among = processes.descendants(os.getpid())
        for replica, uid in running:
            if load := Load.of(f"{self.job}/{uid}/", among):
                self._take(replica, uid, load)
        self._pause = min(2 * self._pause, _PAUSES[1])
        self._due = time.monotonic() + self._pause
        write_json(self.files.usage, {name: use.to_dict() for name, use in of_pods(self._uses.values()).items()})

    def _take(self, replica: str, uid: str, load: Load) -> None:
        cpu = load.cores_since(self._before.get(uid))
        self._before[uid] = load
        _, use = self._uses.get(uid, (replica, PeakUsage()))
        memory = max(load.memory, load.highest)
        self._uses[uid] = replica, use.with_sample({"cpu": cpu, "memory": memory, "disk": load.written})


def told(files: JobFiles) -> dict[str, PeakUsage]:
    """Return the usage that a job's supervisor has written."""
    found: dict[str, dict[str, Any]] = read_json(files.usage) or {}
    return {name: PeakUsage(**fields) for name, fields in found.items()}


def _stat(pid: int) -> list[bytes]:
    """Return the numbers after the name in /proc/PID/stat; none for an ended process."""
    return _read(pid, "stat").rpartition(b")")[2].split()


def _number(pid: int, file: str, name: str) -> int | None:
    """Return the number of that name in one of a process's files."""
    for line in _read(pid, file).splitlines():
        words = line.split()
        if words[:1] == [name.encode()]:
            return int(words[1])
    return None


def _read(pid: int, file: str) -> bytes:
    try:
        return (_PROC / str(pid) / file).read_bytes()
    except OSError:
        return b""
