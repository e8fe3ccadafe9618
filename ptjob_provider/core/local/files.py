"""Where a job's state lies on disk, who writes which file, and how: whole or not at all.

Each file has one writer, named at its end; clients are whoever uses the back-end, in any process.

    <root>/jobs/<namespace>/<job>/
        object.json            the job as submitted and patched (clients, holding object.lock)
        notices.json           what does not apply here, as Events (the submitter)
        status/<number>.json   {"status", "pods"}; the highest number is now (the supervisor; when it is dead a client)
        supervisor.json        which process supervises (the supervisor)
        supervisor.lock        held by the submitter, then by the supervisor, until it ends
        supervisor.log         what went wrong in the supervisor itself
        processes.json         the processes it started, with their start times (the supervisor)
        usage.json             what its replicas were measured to use (the supervisor)
        logs/<pod>/<incarnation>_<pod uid>/<container>/<restart>.log    in the kubelet's format (the supervisor)
        run/<pod>/             emptyDirs, working directories; gone with the pod
    <root>/claims/<namespace>/<claim>/    never removed by us
    <root>/gpus/<device>.lock             held by the supervisor whose job has the device
    <root>/trash/                         jobs that are being removed
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_KEPT_SNAPSHOTS = 100
_KEPT_SECONDS = 60.0


@dataclass(frozen=True)
class JobFiles:
    """The files of one job; nothing is read or made before it is asked for."""

    path: Path

    @property
    def object(self) -> Path:
        """The job's metadata and spec."""
        return self.path / "object.json"

    @property
    def object_lock(self) -> Path:
        """Held while clients change the object."""
        return self.path / "object.lock"

    @property
    def notices(self) -> Path:
        """What was announced at submission."""
        return self.path / "notices.json"

    @property
    def supervisor(self) -> Path:
        """The supervisor's identity."""
        return self.path / "supervisor.json"

    @property
    def supervisor_lock(self) -> Path:
        """Held as long as somebody answers for the job."""
        return self.path / "supervisor.lock"

    @property
    def supervisor_log(self) -> Path:
        """The supervisor's own stderr."""
        return self.path / "supervisor.log"

    @property
    def processes(self) -> Path:
        """The processes that the supervisor started."""
        return self.path / "processes.json"

    @property
    def usage(self) -> Path:
        """What its replicas were measured to use."""
        return self.path / "usage.json"

    @property
    def snapshots(self) -> Snapshots:
        """The states that the job went through."""
        return Snapshots(self.path / "status")

    def pod_directory(self, pod: str) -> Path:
        """What one pod has on this disk besides its logs; a new pod of the name finds it empty."""
        return self.path / "run" / pod

    def logs_of(self, pod: str) -> Path:
        """The logs of all pods that had this name, one directory each, numbered in their order."""
        return self.path / "logs" / pod


@dataclass(frozen=True)
class Snapshots:
    """Numbered states, each a file: a reader that comes every few seconds misses none."""

    path: Path

    def latest(self) -> tuple[int, dict[str, Any]]:
        """Return the newest state and its number; number 0 and an empty one before the first."""
        for number in reversed(self._numbers()):
            value = read_json(self._file(number))
            if value is not None:
                return number, value
        return 0, {}

    def after(self, number: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the states after this number, oldest first."""
        found = [(later, read_json(self._file(later))) for later in self._numbers() if later > number]
        return [(later, value) for later, value in found if value is not None]

    def append(self, number: int, value: dict[str, Any]) -> None:
        """Write the state of this number, and forget states that every reader has had time to see."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        write_json(self._file(number), value)
        self._prune(number)

    def newest(self) -> int:
        """Return the newest state's number; 0 before the first."""
        return max(self._numbers(), default=0)

    def _prune(self, newest: int) -> None:
        if newest % _KEPT_SNAPSHOTS:
            return
        limit = time.time() - _KEPT_SECONDS
        for number in self._numbers():
            file = self._file(number)
            if number <= newest - _KEPT_SNAPSHOTS and file.stat().st_mtime < limit:
                file.unlink()

    def _numbers(self) -> list[int]:
        try:
            return sorted(int(file.stem) for file in self.path.iterdir() if file.stem.isdigit())
        except FileNotFoundError:
            return []

    def _file(self, number: int) -> Path:
        return self.path / f"{number:08}.json"


def make_private(directory: Path) -> None:
    """Make a directory, and those that are missing above it, for this user alone; what is there stays as it is."""
    if not directory.is_dir():
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def private(path: str, flags: int) -> int:
    """Open a file, as an `opener`; one that is made is for this user alone."""
    return os.open(path, flags, 0o600)


def read_json(path: Path) -> Any:
    """Return the file's value; None if there is no such file, or a power failure left it without content."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def stamp(path: Path) -> tuple[int, int]:
    """Return something that differs after each `write_json`; zeros if there is no such file.

    The time alone would not do: two changes within a tick of the kernel's clock have the same.
    """
    try:
        facts = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    return facts.st_ino, facts.st_mtime_ns


def write_json(path: Path, value: Any, *, durable: bool = False) -> None:
    """Replace the file: a reader sees the old value or the new one, never a part.

    Args:
        path: the file.
        value: JSON-safe.
        durable: it also survives a power failure.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        with open(temporary, "x", opener=private) as file:
            file.write(json.dumps(value, separators=(",", ":")))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:  # a full disk is not filled further
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock; whoever held it and died holds it no more.

    Raises:
        FileNotFoundError: its directory is gone.
    """
    with open(path, "a", opener=private) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_locked(path: Path) -> bool:
    """Whether a living process holds the file's lock."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
