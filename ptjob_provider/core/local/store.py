"""Store the jobs of one root on disk, and get, list, patch and delete them as an API server does.

Each file has one writer, named in parentheses. A client is any process that uses the back-end.

    <root>/jobs/<namespace>/<job>/
        object.json        the job as submitted and patched (clients, holding object.lock)
        notices.json       Events about fields that do not apply (the submitter)
        states.jsonl       {"status", "pods"} per line, the current one last (the supervisor; after its death a client)
        supervisor.lock    held by the submitter, then by the supervisor until it ends; contains the supervisor's pid
        supervisor.log     errors of the supervisor itself
        usage.json         measured usage of the replicas (the supervisor)
        logs/<pod>/<incarnation>_<pod uid>/<container>/<restart>.log    in the kubelet's format (the supervisor)
        run/<pod>/         emptyDirs, working directories; deleted with the pod
    <root>/claims/<namespace>/<claim>/    never deleted
    <root>/gpus/<device>.lock             held by the supervisor whose job has the device
    <root>/trash/                         jobs that are being deleted

A supervisor that exits normally leaves a finished job and no processes. If `supervisor.lock` is free and the job is in
any other state, the supervisor died, or the submitter died before it started one. There is no background process: each
call first does what is due (`settle`).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from contextlib import contextmanager, suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec, JobNotFound
from ptjob_provider.core.identity import JobRef, check_name
from ptjob_provider.core.kinds.pytorchjob import KIND
from ptjob_provider.core.local.operator import instant, is_finished, with_condition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.operator import Status

SUPERVISOR_LOST = "SupervisorLost"
"""Reason of the Failed condition of a job whose supervisor died."""

_MESSAGE = (
    "the process that supervised the job is gone (killed, or the machine was restarted); what it had started was ended"
)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class JobFiles:
    """Paths of one job's files; creating an instance neither reads nor creates files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.object = path / "object.json"
        self.object_lock = path / "object.lock"
        self.notices = path / "notices.json"
        self.states = States(path / "states.jsonl")
        self.supervisor_lock = path / "supervisor.lock"
        self.supervisor_log = path / "supervisor.log"
        self.usage = path / "usage.json"

    def pod_directory(self, pod: str) -> Path:
        """Return one pod's directory on disk, without its logs; it is emptied for a new pod of the same name."""
        return self.path / "run" / pod

    def logs_of(self, pod: str) -> Path:
        """Return the directory of the logs of all pods of this name, with one numbered directory for each pod."""
        return self.path / "logs" / pod

    @property
    def is_supervised(self) -> bool:
        """Return whether the job has a living supervisor, or a submitter that is about to start it."""
        return is_locked(self.supervisor_lock)


class States:
    """File of all states of a job, one JSON line each, so that a reader that polls every few seconds misses none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, state: Mapping[str, Any]) -> None:
        """Append a state; readers ignore it until its line is complete."""
        line = json.dumps(state, separators=(",", ":")).encode()
        with open(self._path, "ab", opener=private) as file:
            file.write(b"\n%s\n" % line)  # a new line first, because a killed writer may have left an incomplete one

    def after(self, offset: int) -> tuple[int, list[dict[str, Any]]]:
        """Return the states after this offset, oldest first, and the next offset."""
        complete, _, _ = read(self._path)[offset:].rpartition(b"\n")
        states = [state for line in complete.splitlines() if (state := parsed(line))]
        return offset + len(complete), states

    def latest(self) -> dict[str, Any]:
        """Return the newest state; empty before the first."""
        lines = reversed(read(self._path).rpartition(b"\n")[0].splitlines())
        return next(filter(None, map(parsed, lines)), {})


class JobState:
    """Object and state of one job as last read, for callers that poll.

    Attributes:
        job: the job's object; None if there is none.
        state: the newest state.
        unseen: the states that the last `refresh` has added.
    """

    def __init__(self, files: JobFiles) -> None:
        self._files = files
        self._text: bytes | None = None
        self._offset = 0
        self.job: Manifest | None = None
        self.state: dict[str, Any] = {}
        self.unseen: list[dict[str, Any]] = []

    def refresh(self) -> bool:
        """Read the changes since the last call; return whether there were any."""
        text = read(self._files.object)
        is_changed = text != self._text
        if is_changed:
            self._text, self.job = text, parsed(text)
        self._offset, self.unseen = self._files.states.after(self._offset)
        self.state = self.unseen[-1] if self.unseen else self.state
        return is_changed or bool(self.unseen)


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


def check_label(field: str, name: str) -> str:
    """Return the name if it is a DNS-1123 label, which is also valid as the name of a directory.

    Raises:
        InvalidSpec: the name is not a DNS-1123 label.
    """
    if not _LABEL.fullmatch(name):
        rule = "allowed: lower-case letters, digits and '-', at most 63 characters (DNS-1123)"
        raise InvalidSpec.of(field, name, rule)
    return name


class JobStore:
    """Store of the jobs below one root directory."""

    def __init__(self, root: Path) -> None:
        self._jobs = root.absolute() / "jobs"

    def files(self, namespace: str, name: str) -> JobFiles:
        """Return the paths of this job's files, which need not exist.

        Raises:
            InvalidSpec: the name or the namespace is invalid.
        """
        return JobFiles(self._jobs / check_label("metadata.namespace", namespace) / check_name(name))

    def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return the object with this name; see `Backend.get`."""
        job = _current(self.files(namespace, name)) if kind == KIND else None
        if job is None:
            raise _not_found(kind, namespace, name)
        return job

    def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        """Return the objects with these labels, oldest first; see `Backend.list`."""
        namespaces = check_label("metadata.namespace", namespace) if namespace else "*"
        paths = self._jobs.glob(f"{namespaces}/*") if kind == KIND else ()
        jobs = [_current(JobFiles(path)) for path in sorted(paths) if not path.name.startswith(".")]
        chosen = [job for job in jobs if job and labels.items() <= (job["metadata"].get("labels") or {}).items()]
        return sorted(chosen, key=lambda job: str(job["metadata"]["creationTimestamp"]))

    def patch(self, ref: JobRef, change: Manifest) -> None:
        """Merge the change into the object; see `Backend.patch`."""
        files = self.files(ref.namespace, ref.name)
        settle(files)
        try:
            with locked(files.object_lock):
                write_json(files.object, merged(_object_of(files, ref), change))
        except FileNotFoundError as error:
            raise _not_found(ref.kind, ref.namespace, ref.name) from error

    def delete(self, ref: JobRef) -> None:
        """Stop and delete the job, through its supervisor, or directly if the supervisor is dead."""
        files = self.files(ref.namespace, ref.name)
        _mark_deleted(files, ref)
        settle(files)

    def pods_gone(self, ref: JobRef) -> bool:
        """Return whether nothing of the job with this uid runs; see `Backend.pods_gone`."""
        files = self.files(ref.namespace, ref.name)
        settle(files)
        job = read_json(files.object)
        if job is None or JobRef.of(job) != ref:
            return True
        if job["metadata"].get("deletionTimestamp"):
            return False  # the job's directory, and so its name, is removed last
        return not needs_recovery(files.states.latest())


def settle(files: JobFiles) -> None:
    """Do what is due: delete an expired job, recover from a dead supervisor, complete an interrupted deletion."""
    job = read_json(files.object)
    if job and is_expired(job, files.states.latest().get("status", {}), datetime.now(UTC)):
        _mark_deleted(files, JobRef.of(job))
    if job is None or files.is_supervised:
        return
    with suppress(FileNotFoundError), locked(files.object_lock):
        _settle_unsupervised(files)


def _settle_unsupervised(files: JobFiles) -> None:
    job = read_json(files.object)
    if job is None or files.is_supervised:
        return
    state = files.states.latest()
    if needs_recovery(state):
        _end_pods(files, job, state)
        files.states.append(recovered(state, datetime.now(UTC)))
    if job["metadata"].get("deletionTimestamp"):
        remove_job(files)


def _end_pods(files: JobFiles, job: Manifest, state: Mapping[str, Any]) -> None:
    from ptjob_provider.core.local import launch, processes  # noqa: PLC0415 - only needed after a supervisor's death

    processes.kill_all(lambda: processes.marked(f"{job['metadata']['uid']}/"))
    for pod in state.get("pods", ()):
        for directory in (files.pod_directory(pod["metadata"]["name"]), launch.memory_of(pod["metadata"]["uid"])):
            shutil.rmtree(directory, ignore_errors=True)


def remove_job(files: JobFiles) -> None:
    """Move the job's directory to the trash, which frees the name at once, then empty the trash; claims stay."""
    trash = files.path.parents[2] / "trash"
    trash.mkdir(mode=0o700, exist_ok=True)
    files.path.rename(trash / f"{files.path.parent.name}.{files.path.name}.{time.time_ns()}")
    for remains in trash.iterdir():
        shutil.rmtree(remains, ignore_errors=True)


def needs_recovery(state: Mapping[str, Any]) -> bool:
    """Return whether in this state the job has not ended, or one of its pods may still run."""
    is_active = any(pod["status"]["phase"] not in ("Succeeded", "Failed") for pod in state.get("pods", ()))
    return is_active or not is_finished(state.get("status", {}))


def recovered(state: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the state with the job failed, and its containers ended as a kubelet reports an end it did not observe."""
    status: Status = dict(state.get("status", {}))
    if not is_finished(status):
        status = with_condition(
            {"completionTime": instant(now), **status}, "Failed", _MESSAGE, now=now, reason=SUPERVISOR_LOST
        )
    return {"status": status, "pods": [_ended_pod(pod, now) for pod in state.get("pods", ())]}


def _ended_pod(pod: Manifest, now: datetime) -> Manifest:
    status = pod["status"]
    if status["phase"] in ("Succeeded", "Failed"):
        return pod
    kinds = [kind for kind in ("initContainerStatuses", "containerStatuses") if kind in status]
    ended = {kind: [_ended_container(container, now) for container in status[kind]] for kind in kinds}
    return {**pod, "status": {**status, **ended, "phase": "Failed", "reason": SUPERVISOR_LOST}}


def _ended_container(container: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    if "running" not in container["state"]:
        return container
    terminated = {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
        "startedAt": container["state"]["running"]["startedAt"],
        "finishedAt": instant(now),
    }
    return {**container, "ready": False, "state": {"terminated": terminated}}


def is_expired(job: Manifest, status: Mapping[str, Any], now: datetime) -> bool:
    """Return whether the job's time to live has passed; a job without a completion time stays, as on a cluster."""
    ttl = (job["spec"].get("runPolicy") or {}).get("ttlSecondsAfterFinished")
    completed = status.get("completionTime")
    if ttl is None or not completed or not is_finished(status):
        return False
    return now > datetime.fromisoformat(completed) + timedelta(seconds=ttl)


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


def _current(files: JobFiles) -> Manifest | None:
    """Return the job's object with its status; None if there is none."""
    settle(files)
    job = read_json(files.object)
    return None if job is None else {**job, "status": files.states.latest().get("status", {})}


def _object_of(files: JobFiles, ref: JobRef) -> Manifest:
    job: Manifest | None = read_json(files.object)
    if job is None or JobRef.of(job) != ref:
        raise _not_found(ref.kind, ref.namespace, ref.name)
    return job


def _mark_deleted(files: JobFiles, ref: JobRef) -> None:
    with suppress(FileNotFoundError, JobNotFound), locked(files.object_lock):
        job = _object_of(files, ref)
        if not job["metadata"].get("deletionTimestamp"):
            meta = {**job["metadata"], "deletionTimestamp": instant(datetime.now(UTC))}
            write_json(files.object, {**job, "metadata": meta})


def _not_found(kind: str, namespace: str, name: str) -> JobNotFound:
    return JobNotFound(f"{namespace}/{name}: there is no such {kind} on this machine", code=404, reason="NotFound")
