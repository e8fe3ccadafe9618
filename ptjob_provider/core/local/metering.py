"""What the processes of a job use on this machine, as the kernel counts; told in a file by the job's supervisor.

Every process of a pod counts, whoever has started it. Memory that processes share is counted for each of them. There is
no network of their own to measure.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.local import processes
from ptjob_provider.core.local.files import read_json, write_json
from ptjob_provider.core.measured import Use, of_pods

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from ptjob_provider.core.local.files import JobFiles
    from ptjob_provider.core.local.processes import ProcessId

_PAUSES = (0.2, 5.0)
"""Seconds until the second look, and between two at most: each pause is twice as long as the one before."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_KIBIBYTE = 1024


@dataclass(frozen=True, kw_only=True)
class Load:
    """What processes have used together.

    Attributes:
        seconds: of CPU, those of their ended children included.
        memory: bytes that are resident now.
        highest: the most that were of one of them alone, at whatever moment.
        written: bytes sent to disks, those of their ended children included; None where the kernel does not say.
        began: before the seconds were read, by the monotonic clock: whoever reads may stand still at any moment.
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
        """Read that of a pod's processes, which carry a mark that begins so; None if it has none that lives."""
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
        """Return how many cores were used since an earlier look: never more than were.

        None without one, or where processes that have ended took more along than was used since.
        """
        if before is None or self.seconds < before.seconds:
            return None
        return (self.seconds - before.seconds) / (self.ended - before.began)


@dataclass
class Meter:
    """Looks at the pods of one job, seldom enough to cost nothing.

    Args:
        job: its uid.
        files: where it tells what it saw.
    """

    job: str
    files: JobFiles
    _uses: dict[str, tuple[str, Use]] = field(default_factory=dict)
    _before: dict[str, Load] = field(default_factory=dict)
    _pause: float = _PAUSES[0]
    _due: float = 0.0

    def look(self, pods: Iterable[tuple[str, str]]) -> None:
        """Look at those that run, replica and uid of each, if it is time to.

        A disk that is full, or whatever else the system refuses, costs a look and not the job.
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
        _, use = self._uses.get(uid, (replica, Use()))
        memory = max(load.memory, load.highest)
        self._uses[uid] = replica, use.seen({"cpu": cpu, "memory": memory, "disk": load.written})


def told(files: JobFiles) -> dict[str, Use]:
    """Return what a job's supervisor has told of its replicas."""
    found: dict[str, dict[str, Any]] = read_json(files.usage) or {}
    return {name: Use(**fields) for name, fields in found.items()}


def _stat(pid: int) -> list[bytes]:
    """Return the numbers behind the name in /proc/PID/stat; none of a process that has ended."""
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
