"""Layout of a job's state on disk: the writer of each file, atomic writes, and reads only after a change.

Each file has one writer, named in parentheses; clients are users of the back-end, in any process.

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
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ptjob_provider.core.identity import Manifest

_KEPT_SNAPSHOTS = 100
_KEPT_SECONDS = 60.0


@dataclass(frozen=True)
class JobFiles:
    """Paths of one job's files; reads and creates nothing by itself."""

    path: Path

    @property
    def object(self) -> Path:
        """Return the path of the job's metadata and spec."""
        return self.path / "object.json"

    @property
    def object_lock(self) -> Path:
        """Return the path of the lock that clients hold while they change the object."""
        return self.path / "object.lock"

    @property
    def notices(self) -> Path:
        """Return the path of the announcements at submission."""
        return self.path / "notices.json"

    @property
    def supervisor(self) -> Path:
        """Return the path of the supervisor's identity."""
        return self.path / "supervisor.json"

    @property
    def supervisor_lock(self) -> Path:
        """Return the path of the lock that the job's supervisor or submitter holds while it lives."""
        return self.path / "supervisor.lock"

    @property
    def supervisor_log(self) -> Path:
        """Return the path of the supervisor's own stderr."""
        return self.path / "supervisor.log"

    @property
    def processes(self) -> Path:
        """Return the path of the supervisor's list of processes."""
        return self.path / "processes.json"

    @property
    def usage(self) -> Path:
        """Return the path of the replicas' measured usage."""
        return self.path / "usage.json"

    @property
    def snapshots(self) -> Snapshots:
        """Return the job's states."""
        return Snapshots(self.path / "status")

    def pod_directory(self, pod: str) -> Path:
        """Return one pod's directory on this disk, without its logs; a new pod of the name finds it empty."""
        return self.path / "run" / pod

    def logs_of(self, pod: str) -> Path:
        """Return the logs of all pods of this name, one numbered directory each, in order."""
        return self.path / "logs" / pod


@dataclass(frozen=True)
class Snapshots:
    """Numbered states, one file each, so that a reader that polls every few seconds misses none."""

    path: Path

    def latest(self) -> tuple[int, dict[str, Any]]:
        """Return the newest state and its number; 0 and an empty state before the first."""
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
        """Write the state of this number, and delete states that every reader has had time to read."""
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
    """Create a directory and its missing parents for this user alone; existing ones are unchanged."""
    if not directory.is_dir():
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def private(path: str, flags: int) -> int:
    """Open a file, as an `opener`; a created file is for this user alone."""
    return os.open(path, flags, 0o600)


def read_json(path: Path) -> Any:
    """Return the file's value; None if the file is missing, or was left empty by a power failure."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def stamp(path: Path) -> tuple[int, int]:
    """Return a value that changes with each `write_json`; zeros if the file is missing.

    Includes more than the time, since two changes within a tick of the kernel's clock have the same.
    """
    try:
        facts = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    return facts.st_ino, facts.st_mtime_ns


def write_json(path: Path, value: Any, *, durable: bool = False) -> None:
    """Replace the file atomically.

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
    except OSError:  # frees space on a full disk
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock; the kernel releases a dead holder's.

    Raises:
        FileNotFoundError: its directory is gone.
    """
    with open(path, "a", opener=private) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the file's lock."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def current_job(files: JobFiles) -> Manifest | None:
    """Return the job's object with its status; None if there is none."""
    job = read_json(files.object)
    return None if job is None else with_status(job, files.snapshots.latest()[1])


def with_status(job: Manifest, state: Mapping[str, Any]) -> Manifest:
    """Return the object with this state's status."""
    return {**job, "status": state.get("status", {})}


class JobState:
    """Last known object and state of one job, for a poller."""

    def __init__(self, files: JobFiles) -> None:
        self._files = files
        self._stamp = (-1, -1)
        self.job: Manifest | None = None
        self.number = -1
        self.state: dict[str, Any] = {}

    def refresh(self) -> bool:
        """Read the changes since the last call; return whether there were any."""
        job_changed = self._refresh_job()
        return self._refresh_state() or job_changed

    def _refresh_job(self) -> bool:
        found = stamp(self._files.object)
        if found == self._stamp:
            return False
        self._stamp, self.job = found, read_json(self._files.object)
        return True

    def _refresh_state(self) -> bool:
        if self._files.snapshots.newest() == self.number:
            return False
        self.number, self.state = self._files.snapshots.latest()
        return True
