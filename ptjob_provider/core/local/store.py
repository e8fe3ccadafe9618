"""Store the jobs of one root on disk, and get, list, patch and delete them as an API server does.

Each file has one writer, named in parentheses. A client is any process that uses the back-end.

    <root>/jobs/<namespace>/<job>/
        object.json        the job as submitted and patched (clients, holding object.lock)
        notices.json       Events about fields that do not apply (the submitter)
        state.json         {"status", "pods"} (the supervisor; after its death a client)
        supervisor.lock    held by the submitter, then by the supervisor until it ends; contains the supervisor's pid
        supervisor.log     errors of the supervisor itself
        reserve            room for the files above; deleted by whoever meets a full disk
        logs/<pod>/<container>.log    in the kubelet's format (the supervisor)
        run/<pod>/         emptyDirs, working directories; deleted when the job has ended
    <root>/claims/<namespace>/<claim>/    never deleted
    <root>/gpus.lock                      held by the supervisor whose job has devices

A directory whose name begins with a dot is a job that is being created or deleted.

A supervisor that exits normally leaves a finished job and no processes. If `supervisor.lock` is free and the job is in
any other state, the supervisor died, or the submitter died before it started one. There is no background process: each
call first does what is due (`current`).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from contextlib import contextmanager, suppress
from copy import deepcopy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import ClusterError, JobChanged, JobNotFound
from ptjob_provider.core.identity import JobRef, check_name
from ptjob_provider.core.kinds.pytorchjob import KIND
from ptjob_provider.core.local.status import instant, is_finished, with_condition
from ptjob_provider.core.spec.pods import dns_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.status import Status

SUPERVISOR_LOST = "SupervisorLost"
"""Reason of the Failed condition of a job whose supervisor died."""

_MESSAGE = (
    "the process that supervised the job is gone (killed, or the machine was restarted); what it had started was ended"
)
_RESERVED = 64 * 1024
"""Bytes of `reserve`: enough to write the object and the state of a job once."""

_LEAST_TTL = 10
"""Seconds for which an ended job stays at least: its followers look every now and then, and no watch keeps its end."""

_ENDED = ("Succeeded", "Failed")


class JobFiles:
    """Paths of one job's files; creating an instance neither reads nor creates files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.object = path / "object.json"
        self.object_lock = path / "object.lock"
        self.notices = path / "notices.json"
        self.outputs_before = path / "outputs-before.json"
        self.state = path / "state.json"
        self.supervisor_lock = path / "supervisor.lock"
        self.supervisor_log = path / "supervisor.log"
        self.reserve = path / "reserve"

    def log(self, pod: str, container: str) -> Path:
        """Return the log of one container."""
        return self.path / "logs" / pod / f"{container}.log"

    @property
    def is_supervised(self) -> bool:
        """Return whether the job has a living supervisor, or a submitter that is about to start it."""
        return is_locked(self.supervisor_lock)

    def read_state(self) -> dict[str, Any]:
        """Return the job's status and pods as last written; empty before the first time."""
        return read_json(self.state) or {}

    @property
    def version(self) -> str:
        """Return a text that changes whenever the supervisor writes the job's state."""
        return hashlib.sha256(read(self.state)).hexdigest()

    def keep_reserve(self) -> None:
        """Set aside the room with which `write` works on a full disk."""
        with open(self.reserve, "wb", opener=private) as file:
            os.posix_fallocate(file.fileno(), 0, _RESERVED)

    def write(self, path: Path, value: Any) -> None:
        """Replace one of the job's files; on a full disk, give up the reserve for it."""
        try:
            write_json(path, value)
        except OSError as error:
            if not is_full(error):
                raise
            self.reserve.unlink(missing_ok=True)
            write_json(path, value)


def make_private(directory: Path) -> None:
    """Create a directory and its missing parents for this user alone; existing ones are unchanged."""
    if not directory.is_dir():
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def private(path: str, flags: int) -> int:
    """Open a file, as an `opener`; a created file is for this user alone."""
    return os.open(path, flags, 0o600)


def read(path: Path) -> bytes:
    """Return the file's content; nothing if it is missing."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""


def parsed(text: bytes) -> Any:
    """Return the JSON value; None if the text is empty, or incomplete after a power failure or a killed writer."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def read_json(path: Path) -> Any:
    """Return the file's value; None if the file is missing or incomplete."""
    return parsed(read(path))


def write_json(path: Path, value: Any) -> None:
    """Replace the file atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        with open(temporary, "x", opener=private) as file:
            file.write(json.dumps(value, separators=(",", ":")))
        temporary.rename(path)
    except OSError:  # frees space on a full disk
        temporary.unlink(missing_ok=True)
        raise


def is_full(error: OSError) -> bool:
    """Return whether the error is that of a full disk, or of a user's full share of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def not_written(path: Path, error: OSError) -> str:
    """Return a sentence about files below this path that could not be written, with the advice for a full disk."""
    if not is_full(error):
        return f"{path} could not be written to: {error}"
    advice = "make room, for example with `ptjob delete NAME` or `ptjob prune`, then try again"
    return f"the disk of {path} is full ({error.strerror}): {advice}"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock; the kernel releases it if this process dies.

    Raises:
        FileNotFoundError: the file's directory does not exist.
    """
    with open(path, "a", opener=private) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the file's lock."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except BlockingIOError:
        return True
    return False


class JobStore:
    """Store of the jobs below one root directory."""

    def __init__(self, root: Path) -> None:
        self._jobs = root.absolute() / "jobs"

    def files(self, namespace: str, name: str) -> JobFiles:
        """Return the paths of this job's files, which need not exist.

        Raises:
            InvalidSpec: the name or the namespace is invalid.
        """
        return JobFiles(self._jobs / dns_label("metadata.namespace", namespace) / check_name(name))

    def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return the object with this name; see `Backend.get`."""
        job = _with_status(self.files(namespace, name)) if kind == KIND else None
        if job is None:
            raise _not_found(kind, namespace, name)
        return job

    def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        """Return the objects with these labels, oldest first; see `Backend.list`."""
        namespaces = dns_label("metadata.namespace", namespace) if namespace else "*"
        paths = self._jobs.glob(f"{namespaces}/*") if kind == KIND else ()
        jobs = [_with_status(JobFiles(path)) for path in sorted(paths) if not path.name.startswith(".")]
        chosen = [job for job in jobs if job and labels.items() <= (job["metadata"].get("labels") or {}).items()]
        return sorted(chosen, key=lambda job: str(job["metadata"]["creationTimestamp"]))

    def patch(self, ref: JobRef, change: Manifest) -> None:
        """Merge the change into the object; see `Backend.patch`."""
        files = self.files(ref.namespace, ref.name)
        current(files)
        try:
            with locked(files.object_lock):
                files.write(files.object, merged(_object_of(files, ref), change))
        except FileNotFoundError as error:
            raise _not_found(ref.kind, ref.namespace, ref.name) from error
        except OSError as error:
            raise ClusterError(f"{ref}: {not_written(files.path, error)}") from error

    def delete(self, ref: JobRef, *, version: str | None = None) -> None:
        """Delete the job at once if it has no supervisor, else have its supervisor stop and delete it.

        Deleting a job without a supervisor writes nothing, so that it works on a full disk. See `Backend.delete`.
        """
        files = self.files(ref.namespace, ref.name)
        try:
            with suppress(FileNotFoundError, JobNotFound), locked(files.object_lock):
                job = _object_of(files, ref)
                if version not in (None, files.version):
                    raise JobChanged(f"{ref}: the job has changed since it was read", code=409, reason="Conflict")
                if not files.is_supervised:
                    _remove(files, job)
                elif not job["metadata"].get("deletionTimestamp"):
                    meta = {**job["metadata"], "deletionTimestamp": instant(datetime.now(UTC))}
                    files.write(files.object, {**job, "metadata": meta})
        except OSError as error:
            raise ClusterError(f"{ref}: {not_written(files.path, error)}") from error

    def pods_gone(self, ref: JobRef) -> bool:
        """Return whether nothing of the job with this uid runs; see `Backend.pods_gone`."""
        job, state = current(self.files(ref.namespace, ref.name))
        if job is None or JobRef.of(job) != ref:
            return True
        # The job's directory, and so its name, is removed last.
        return not job["metadata"].get("deletionTimestamp") and not needs_recovery(state)


def current(files: JobFiles) -> tuple[Manifest | None, dict[str, Any]]:
    """Return the job's object and state, after doing what is due.

    This ends what a dead supervisor has left, completes an interrupted deletion, and deletes an expired job.
    """
    if not files.is_supervised:
        with suppress(FileNotFoundError, NotADirectoryError), locked(files.object_lock):
            return _settled(files)
    return read_json(files.object), files.read_state()


def _settled(files: JobFiles) -> tuple[Manifest | None, dict[str, Any]]:
    job, state = read_json(files.object), files.read_state()
    if job is None or files.is_supervised:
        return job, state
    now = datetime.now(UTC)
    if job["metadata"].get("deletionTimestamp") or is_expired(job, state.get("status", {}), now):
        _remove(files, job)
        return None, {}
    if needs_recovery(state):
        _end_processes(files, job)
        state = recovered(state, now)
        with suppress(OSError):  # on a full disk, the next call recovers again
            files.write(files.state, state)
    return job, state


def _remove(files: JobFiles, job: Manifest) -> None:
    _end_processes(files, job)
    remove_job(files)


def _end_processes(files: JobFiles, job: Manifest) -> None:
    from ptjob_provider.core.local import launch, processes  # noqa: PLC0415 - only needed without a supervisor

    if needs_recovery(files.read_state()):
        processes.kill_all(lambda: processes.with_mark(f"{job['metadata']['uid']}/"))
        for directory in (files.path / "run", launch.memory_of(job["metadata"]["uid"])):
            shutil.rmtree(directory, ignore_errors=True)


def remove_job(files: JobFiles) -> None:
    """Hide the job's directory, which frees the name at once, and delete it; claims stay."""
    jobs, prefix = files.path.parent, ".deleted."
    files.path.rename(jobs / f"{prefix}{files.path.name}.{time.time_ns()}")
    for remains in jobs.glob(f"{prefix}*"):  # those of a deletion that was interrupted, too
        shutil.rmtree(remains, ignore_errors=True)


def needs_recovery(state: Mapping[str, Any]) -> bool:
    """Return whether in this state the job has not ended, or one of its pods may still run."""
    is_active = any(pod["status"]["phase"] not in _ENDED for pod in state.get("pods", ()))
    return is_active or not is_finished(state.get("status", {}))


def recovered(state: Mapping[str, Any], now: datetime, message: str = _MESSAGE) -> dict[str, Any]:
    """Return the state with the job and its running pods failed: how their containers ended was not seen."""
    status: Status = dict(state.get("status", {}))
    if not is_finished(status):
        status = with_condition(status, "Failed", message, now=now, reason=SUPERVISOR_LOST)
    lost = {"phase": "Failed", "reason": SUPERVISOR_LOST}
    pods = [
        pod if pod["status"]["phase"] in _ENDED else {**pod, "status": {**pod["status"], **lost}}
        for pod in state.get("pods", ())
    ]
    return {"status": status, "pods": pods}


def is_expired(job: Manifest, status: Mapping[str, Any], now: datetime) -> bool:
    """Return whether the job's time to live has passed."""
    ttl = (job["spec"].get("runPolicy") or {}).get("ttlSecondsAfterFinished")
    completed = status.get("completionTime")
    if ttl is None or not completed:
        return False
    return bool((now - datetime.fromisoformat(completed)).total_seconds() > max(ttl, _LEAST_TTL))


def merged(value: Any, change: Any) -> Any:
    """Return the value with a JSON merge patch (RFC 7386) applied."""
    if not isinstance(change, dict):
        return deepcopy(change)
    result = dict(value) if isinstance(value, dict) else {}
    for key, new in change.items():
        if new is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), new)
    return result


def _with_status(files: JobFiles) -> Manifest | None:
    """Return the job's object with its status; None if there is none."""
    job, state = current(files)
    return None if job is None else {**job, "status": state.get("status", {})}


def _object_of(files: JobFiles, ref: JobRef) -> Manifest:
    job: Manifest | None = read_json(files.object)
    if job is None or JobRef.of(job) != ref:
        raise _not_found(ref.kind, ref.namespace, ref.name)
    return job


def _not_found(kind: str, namespace: str, name: str) -> JobNotFound:
    return JobNotFound(f"{namespace}/{name}: there is no such {kind} on this machine", code=404, reason="NotFound")
