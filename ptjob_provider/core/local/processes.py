"""Identify processes of this machine and their descendants, and end them without hitting others.

A pid alone is ambiguous, since numbers are reused: a process is identified by its pid, its start tick and its boot. A
job's processes carry a mark in their environment (`MARK`), which grandchildren inherit even when they leave their
process group. Everything is read from /proc.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.versions import known_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MARK = "PTJOB_LOCAL_PROCESS"
"""Environment variable of every process of a job: `<job uid>/<pod uid>/<container>`."""

_PROC = Path("/proc")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_TIMEOUT = 5.0


@dataclass(frozen=True, kw_only=True)
class ProcessId:
    """Identity of one process of one boot; a later process with its pid has another one."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Identify the process with this pid; None if there is none, or it has ended."""
        stat = _stat(pid)
        return cls(pid=pid, started=stat.started, boot=boot_id()) if stat else None

    @property
    def is_alive(self) -> bool:
        """Return whether it still runs; a zombie does not."""
        return ProcessId.of(self.pid) == self

    def send(self, signum: int) -> None:
        """Send it a signal; no effect if it has ended."""
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                if self.is_alive:
                    signal.pidfd_send_signal(handle, signum)
            finally:
                os.close(handle)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` returned, in this version or another."""
        return cls(**known_fields(cls, fields))


@dataclass(frozen=True, kw_only=True)
class _Stat:
    parent: int
    session: int
    started: int


def boot_id() -> str:
    """Return this machine's id of its current boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def descendants(pid: int) -> list[ProcessId]:
    """Return the living descendants of a process."""
    children: dict[int, list[int]] = {}
    stats = _all_stats()
    for child, stat in stats.items():
        children.setdefault(stat.parent, []).append(child)
    boot = boot_id()
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        todo += below
        found += [ProcessId(pid=child, started=stats[child].started, boot=boot) for child in below]
    return found


def marked(mark: str, among: Iterable[ProcessId] | None = None) -> list[ProcessId]:
    """Return the living processes with this prefix of their mark: of a job, a pod, or a container."""
    needle = f"{MARK}={mark}".encode()
    candidates = _everybody() if among is None else among
    return [process for process in candidates if _has_mark(process.pid, needle)]


def in_sessions_of(leaders: Iterable[ProcessId]) -> list[ProcessId]:
    """Return the living processes in the sessions that these processes started, dead or alive."""
    boot = boot_id()
    stats = _all_stats()
    of_this_boot = [leader for leader in leaders if leader.boot == boot]
    sessions = {leader.pid: leader.started for leader in of_this_boot if not _is_reused(leader, stats)}
    return [
        ProcessId(pid=pid, started=stat.started, boot=boot)
        for pid, stat in stats.items()
        if stat.session in sessions and stat.started >= sessions[stat.session]
    ]


def kill_all(find: Callable[[], Iterable[ProcessId]], timeout: float = _KILL_TIMEOUT) -> bool:
    """Kill the result of `find` until it is empty; return whether that was reached in time."""
    deadline = time.monotonic() + timeout
    while found := list(find()):
        for process in found:
            process.send(signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def adopt_orphans() -> None:
    """Make this process the parent of all orphaned descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, or has ended; called between fork and exec."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _is_reused(leader: ProcessId, stats: Mapping[int, _Stat]) -> bool:
    return leader.pid in stats and stats[leader.pid].started != leader.started


def _everybody() -> list[ProcessId]:
    boot = boot_id()
    return [ProcessId(pid=pid, started=stat.started, boot=boot) for pid, stat in _all_stats().items()]


def _all_stats() -> dict[int, _Stat]:
    pids = [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]
    return {pid: stat for pid in pids if (stat := _stat(pid))}


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent, _group, session, *rest = text[text.rindex(b")") + 2 :].split()
    if state in (b"Z", b"X"):
        return None
    return _Stat(parent=int(parent), session=int(session), started=int(rest[15]))


def _has_mark(pid: int, needle: bytes) -> bool:
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return any(entry.startswith(needle) for entry in environ.split(b"\0"))
