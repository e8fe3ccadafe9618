"""Watches the sockets that carry log records out of this process: whether they have room, and whether they are empty.

Airflow's processes send their records to a supervisor through sockets. A triggerer's supervisor reads 4 KB between two
database queries (3.3.2), and a write to a full socket blocks the event loop of all triggers until then.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import stat
import struct
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STUCK = 30.0
"""Seconds after which a socket without a reader no longer blocks writers."""

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


@dataclass(frozen=True, kw_only=True, slots=True)
class _Way:
    """A socket: its descriptor, which may be reused, its inode, which is not, and its buffer size."""

    descriptor: int
    inode: int
    size: int

    def unsent(self) -> int:
        """Return the unread bytes, counted by the kernel against `size`."""
        held = array.array("i", [0])
        with contextlib.suppress(OSError):
            if os.fstat(self.descriptor).st_ino == self.inode:
                fcntl.ioctl(self.descriptor, termios.TIOCOUTQ, held)
        return held[0]


class Channel:
    """The sockets between this process and its supervisor at creation time.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ways = tuple(_to_supervisor())
        self._full_since: dict[_Way, tuple[int, float]] = {}

    def has_room(self) -> bool:
        """Return whether a record can be written without blocking: each socket is at most half full."""
        return all(self._is_open(way) for way in self._ways)

    def is_empty(self) -> bool:
        """Return whether everything written has been read."""
        return not self.unsent()

    def unsent(self) -> int:
        """Return how much of what was written is unread, as the kernel counts it."""
        return sum(way.unsent() for way in self._ways)

    def _is_open(self, way: _Way) -> bool:
        unsent = way.unsent()
        if 2 * unsent <= way.size:
            self._full_since.pop(way, None)
            return True
        before, since = self._full_since.get(way, (-1, 0.0))
        if unsent != before:
            self._full_since[way] = (unsent, self._clock())
            return False
        return self._clock() - since > STUCK


def _to_supervisor() -> Iterator[_Way]:
    """Yield the sockets that this process's parent created; all local ones if it created none, as under `sudo`."""
    found = list(_local_sockets())
    made_by_parent = [way for maker, way in found if maker == os.getppid()]
    yield from made_by_parent or (way for _, way in found)


def _local_sockets() -> Iterator[tuple[int, _Way]]:
    """Yield each connected AF_UNIX stream socket of this process, with the process that created it."""
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        with contextlib.suppress(OSError):
            seen = os.fstat(descriptor)
            if stat.S_ISSOCK(seen.st_mode):
                yield from _local_socket(descriptor, seen.st_ino)


def _local_socket(descriptor: int, inode: int) -> Iterator[tuple[int, _Way]]:
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        if (copy.family, copy.type) == (socket.AF_UNIX, socket.SOCK_STREAM):
            credentials = copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            size = copy.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            yield _CREDENTIALS.unpack(credentials)[0], _Way(descriptor=descriptor, inode=inode, size=size)
