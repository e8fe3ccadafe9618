"""Store of the jobs of one root, like an API server: get, list, patch, delete, TTL; recovers dead supervisors' jobs.

A supervisor that exits normally leaves nothing running and a finished job; anything else means that it died. The same
holds for a submitter that died before its supervisor started.

Nothing runs in the background: the next call performs whatever is due (a TTL, a dead supervisor, an unfinished
deletion).
"""

from __future__ import annotations

import re
import shutil
import time
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec, JobNotFound
from ptjob_provider.core.identity import JobRef, Manifest, check_name
from ptjob_provider.core.kinds.pytorchjob import KIND
from ptjob_provider.core.local import processes
from ptjob_provider.core.local.operator import Status, instant, is_finished, with_condition
from ptjob_provider.core.local.processes import ProcessId
from ptjob_provider.core.local.store import JobFiles, current_job, is_locked, locked, read_json, write_json
from ptjob_provider.core.local.volumes import memory_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ptjob_provider.core.identity import Manifest

SUPERVISOR_LOST = "SupervisorLost"
"""Reason of the Failed condition of a job whose supervisor died."""

_MESSAGE = (
    "the process that supervised the job is gone (killed, or the machine was restarted); what it had started was ended"
)


def is_supervised(files: JobFiles) -> bool:
    """Return whether the job has a living supervisor, or a submitter that is about to start it."""
    identity = read_json(files.supervisor)
    if identity is None:
        return is_locked(files.supervisor_lock)
    return ProcessId.from_dict(identity).is_alive


def settle(files: JobFiles, *, trash: Path) -> None:
    """End a job without a supervisor: kill its processes, and remove it if it was deleted."""
    if is_supervised(files):
        return
    try:
        with locked(files.object_lock):
            _settle(files, trash)
    except FileNotFoundError:
        return


def remove_job(files: JobFiles, trash: Path | None = None) -> None:
    """Remove the job's directory at once, then its content; its claims are elsewhere."""
    trash = trash or files.path.parents[2] / "trash"
    trash.mkdir(mode=0o700, exist_ok=True)
    grave = trash / f"{files.path.parent.name}.{files.path.name}.{datetime.now(UTC).timestamp()}"
    files.path.rename(grave)
    shutil.rmtree(grave, ignore_errors=True)


def _settle(files: JobFiles, trash: Path) -> None:
    job = read_json(files.object)
    number, state = files.snapshots.latest()
    if job is None or is_supervised(files):
        return
    if needs_settling(state):
        kill_remains(job, read_json(files.processes) or [])
        _forget_pods(files, state)
        files.snapshots.append(number + 1, ended(state, datetime.now(UTC)))
    if job["metadata"].get("deletionTimestamp"):
        remove_job(files, trash)


def _forget_pods(files: JobFiles, state: Mapping[str, Any]) -> None:
    for pod in state.get("pods", ()):
        for directory in (files.pod_directory(pod["metadata"]["name"]), memory_of(pod["metadata"]["uid"])):
            shutil.rmtree(directory, ignore_errors=True)


def needs_settling(state: Mapping[str, Any]) -> bool:
    """Return whether this last state shows that the supervisor died."""
    running = (is_running(pod) for pod in state.get("pods", ()))
    return not is_finished(state.get("status", {})) or any(running)


def is_running(pod: Manifest) -> bool:
    """Return whether a container of the pod runs."""
    kinds = ("initContainerStatuses", "containerStatuses")
    return any("running" in container["state"] for kind in kinds for container in pod["status"].get(kind, ()))


def ended(state: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the state with the job failed and its containers ended, in the kubelet's words for an unobserved end."""
    status: Status = dict(state.get("status", {}))
    if not is_finished(status):
        status = with_condition(
            {"completionTime": instant(now), **status}, "Failed", _MESSAGE, now=now, reason=SUPERVISOR_LOST
        )
    return {"status": status, "pods": [_ended_pod(pod, now) for pod in state.get("pods", ())]}


def kill_remains(job: Manifest, recorded: list[dict[str, Any]]) -> None:
    """Kill every process of the job, by its mark and by the sessions that its supervisor recorded."""
    leaders = [ProcessId(pid=entry["pid"], started=entry["started"], boot=entry["boot"]) for entry in recorded]
    mark = f"{job['metadata']['uid']}/"
    processes.kill_all(lambda: {*processes.marked(mark), *processes.in_sessions_of(leaders)})


def _ended_pod(pod: Manifest, now: datetime) -> Manifest:
    if pod["status"]["phase"] in ("Succeeded", "Failed"):
        return pod
    kinds = [kind for kind in ("initContainerStatuses", "containerStatuses") if kind in pod["status"]]
    statuses = {kind: [_ended_container(container, now) for container in pod["status"][kind]] for kind in kinds}
    return {**pod, "status": {**pod["status"], **statuses, "phase": "Failed", "reason": SUPERVISOR_LOST}}


def _ended_container(container: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    running = container["state"].get("running")
    if running is None:
        return dict(container)
    terminated = {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
        "startedAt": running["startedAt"],
        "finishedAt": instant(now),
    }
    return {**container, "ready": False, "started": False, "state": {"terminated": terminated}}


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_MAX_NAMESPACE = 63
_SWEEP_INTERVAL = 10.0
_REMAINS_AGE = 3600.0
_CHANGEABLE = {("metadata", "annotations"), ("metadata", "labels"), ("spec", "runPolicy")}
_CHANGEABLE_POLICY = {"cleanPodPolicy", "suspend", "activeDeadlineSeconds", "ttlSecondsAfterFinished", "backoffLimit"}


@dataclass(frozen=True)
class JobStore:
    """The jobs below one directory."""

    root: Path

    @property
    def trash(self) -> Path:
        """Return the directory of jobs that are being removed."""
        return self.root / "trash"

    def files(self, namespace: str, name: str) -> JobFiles:
        """Return the paths of this job's files, existing or not.

        Raises:
            InvalidSpec: the job's name is invalid.
        """
        return JobFiles(self.namespace_directory(namespace) / check_name(name))

    def namespace_directory(self, namespace: str) -> Path:
        """Return the directory of a namespace's jobs.

        Raises:
            InvalidSpec: the namespace's name is invalid.
        """
        if len(namespace) > _MAX_NAMESPACE or not _NAMESPACE.fullmatch(namespace):
            rule = "allowed: lower-case letters, digits and '-', at most 63 characters (DNS-1123)"
            raise InvalidSpec.of("metadata.namespace", namespace, rule)
        return self.root.absolute() / "jobs" / namespace

    def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return the object with this name; see `Backend.get`."""
        job = self._find(namespace, name) if kind == KIND else None
        if job is None:
            raise _not_found(kind, namespace, name)
        return job

    def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        """Return the objects with these labels, oldest first; see `Backend.list`."""
        self.sweep()
        namespaces = [namespace] if namespace else self._namespaces()
        places = [(each, name) for each in namespaces for name in self._names(each)] if kind == KIND else []
        found = [job for each, name in places if (job := self._find(each, name))]
        chosen = [job for job in found if labels.items() <= (job["metadata"].get("labels") or {}).items()]
        return sorted(chosen, key=lambda job: str(job["metadata"]["creationTimestamp"]))

    def patch(self, ref: JobRef, change: Manifest) -> None:
        """Merge the change into the object; see `Backend.patch`."""
        _check_change(change)
        files = self.files(ref.namespace, ref.name)
        self.settle(files)
        try:
            with locked(files.object_lock):
                job = _same(files, ref)
                write_json(files.object, merged(job, change), durable=True)
        except FileNotFoundError as error:
            raise _not_found(ref.kind, ref.namespace, ref.name) from error

    def delete(self, ref: JobRef) -> None:
        """Stop and remove the job, through its supervisor or directly if that is dead."""
        files = self.files(ref.namespace, ref.name)
        with suppress(FileNotFoundError, JobNotFound):
            with locked(files.object_lock):
                _mark_deleted(files, _same(files, ref))
            self.settle(files)

    def pods_gone(self, ref: JobRef) -> bool:
        """Return whether nothing of the job with this uid runs; see `Backend.pods_gone`."""
        files = self.files(ref.namespace, ref.name)
        self.settle(files)
        job = read_json(files.object)
        if job is None or JobRef.of(job) != ref:
            return True
        if job["metadata"].get("deletionTimestamp"):
            return False  # the directory goes last, and with it the name
        number, state = files.snapshots.latest()
        if number == 0 or not is_finished(state["status"]):
            return False
        return not any(is_running(pod) or _is_pending(pod) for pod in state["pods"])

    def settle(self, files: JobFiles) -> None:
        """Perform due actions on a job: after its supervisor's death, at the end of its TTL, for its deletion."""
        _expire(files, datetime.now(UTC))
        settle(files, trash=self.trash)

    def sweep(self) -> None:
        """Perform due actions on all jobs, at most every so often, and remove leftovers of interrupted calls."""
        jobs, marker = self.root.absolute() / "jobs", self.root / ".swept"
        if not jobs.is_dir() or time.time() - (marker.stat().st_mtime if marker.exists() else 0) < _SWEEP_INTERVAL:
            return
        marker.touch(mode=0o600)
        for directory in jobs.glob("*/*"):
            if not directory.name.startswith("."):
                self.settle(JobFiles(directory))
        for remains in (*jobs.glob("*/.*"), *self.trash.glob("*")):
            with suppress(FileNotFoundError):
                if time.time() - remains.stat().st_mtime > _REMAINS_AGE:
                    shutil.rmtree(remains, ignore_errors=True)

    def _find(self, namespace: str, name: str) -> Manifest | None:
        files = self.files(namespace, name)
        self.settle(files)
        return current_job(files)

    def _namespaces(self) -> Sequence[str]:
        folder = self.root.absolute() / "jobs"
        return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def _names(self, namespace: str) -> Iterator[str]:
        with suppress(FileNotFoundError):
            directories = list(self.namespace_directory(namespace).iterdir())
            yield from (directory.name for directory in directories if not directory.name.startswith("."))


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


def _check_change(change: Mapping[str, Any]) -> None:
    for part, fields in change.items():
        for field in fields or ("",):
            if (part, field) not in _CHANGEABLE:
                raise InvalidSpec.of(
                    "patch", f"{part}.{field}", "allowed: metadata.annotations, metadata.labels, spec.runPolicy"
                )
    for field in (change.get("spec") or {}).get("runPolicy") or {}:
        if field not in _CHANGEABLE_POLICY:
            raise InvalidSpec.of(
                "patch", f"spec.runPolicy.{field}", f"allowed: {', '.join(sorted(_CHANGEABLE_POLICY))}"
            )


def _same(files: JobFiles, ref: JobRef) -> Manifest:
    job: Manifest | None = read_json(files.object)
    if job is None or JobRef.of(job) != ref:
        raise _not_found(ref.kind, ref.namespace, ref.name)
    return job


def _mark_deleted(files: JobFiles, job: Manifest) -> None:
    if not job["metadata"].get("deletionTimestamp"):
        meta = {**job["metadata"], "deletionTimestamp": instant(datetime.now(UTC))}
        write_json(files.object, {**job, "metadata": meta}, durable=True)


def _expire(files: JobFiles, now: datetime) -> None:
    job = read_json(files.object)
    if job is None or not is_expired(job, files.snapshots.latest()[1].get("status", {}), now):
        return
    with suppress(FileNotFoundError, JobNotFound), locked(files.object_lock):
        _mark_deleted(files, _same(files, JobRef.of(job)))


def is_expired(job: Manifest, status: Mapping[str, Any], now: datetime) -> bool:
    """Return whether the job's TTL is over; a job without a completion time stays, as on a cluster."""
    ttl = (job["spec"].get("runPolicy") or {}).get("ttlSecondsAfterFinished")
    completed = status.get("completionTime")
    if ttl is None or not completed or not is_finished(status):
        return False
    return now > datetime.fromisoformat(completed) + timedelta(seconds=ttl)


def _is_pending(pod: Manifest) -> bool:
    return bool(pod["status"]["phase"] in ("Pending", "Running"))


def _not_found(kind: str, namespace: str, name: str) -> JobNotFound:
    return JobNotFound(f"{namespace}/{name}: there is no such {kind} on this machine", code=404, reason="NotFound")
