"""Find and end the processes of jobs.

A job's processes carry a mark in their environment (`MARK`), which grandchildren inherit even if they leave their
process group. While the supervisor lives, every process of its job is its descendant, because it adopts orphans.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import TYPE_CHECKING, TypeVar

import psutil

from ptjob_provider.core.local.launch import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_TIMEOUT = 5.0

T = TypeVar("T")


def with_mark(mark: str, among: Iterable[psutil.Process] | None = None) -> list[psutil.Process]:
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


def become_subreaper() -> None:
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
