"""Recover a job whose supervisor is dead: kill what still runs and record its end; any client may do it.

A supervisor that exits normally leaves nothing running and a finished job; anything else means that it died. The same
holds for a submitter that died before its supervisor started.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.local import processes
from ptjob_provider.core.local.conditions import Status, instant, is_finished, with_condition
from ptjob_provider.core.local.files import JobFiles, is_locked, locked, read_json
from ptjob_provider.core.local.processes import ProcessId
from ptjob_provider.core.local.volumes import memory_of

if TYPE_CHECKING:
    from collections.abc import Mapping
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
