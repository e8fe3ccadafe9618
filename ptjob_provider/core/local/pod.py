"""Run one pod as the kubelet does: create its directories, start and restart its containers, report its status."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.local import launch, processes
from ptjob_provider.core.local.launch import LOOPBACK, MARK, PodPlan
from ptjob_provider.core.local.logs import LogFile
from ptjob_provider.core.local.operator import INDEX_LABEL, ROLE_LABEL, instant
from ptjob_provider.core.local.store import read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.config import Setup
    from ptjob_provider.core.local.launch import Launch, Place
    from ptjob_provider.core.local.store import JobFiles

_LABELS = "training.kubeflow.org"
_SCRIPTS = {"python": "", "python3": "", "torchrun": "-m torch.distributed.run "}
_LONGEST = 30
"""Maximum delay of a restart as a multiple of the first delay; a kubelet's delays are 10 s and 300 s."""

_CHUNK = 1024 * 1024
_DRAIN_TIMEOUT = 2.0
_MAX_MESSAGE = 4096


class Container:
    """A container of a pod: waiting, running or terminated."""

    def __init__(self, plan: Launch, *, logs: Path, policy: str, backoff: float) -> None:
        self.plan = plan
        self._logs = logs
        self._policy = policy
        self._backoff = backoff
        self._process: subprocess.Popen[bytes] | None = None
        self._log: LogFile | None = None
        self._restart_count = 0
        self._started_at = ""
        self._terminated: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None
        self._due_at: float | None = None
        self._exited_at = ""
        self._drain_until: float | None = None
        self.has_ended = False
        self.has_started = False

    @property
    def pid(self) -> int | None:
        """Return the main process's pid; None while there is none."""
        return self._process.pid if self._process else None

    @property
    def output(self) -> int | None:
        """Return the descriptor of the container's output; None if it cannot be read any more."""
        stdout = self._process.stdout if self._process else None
        return stdout.fileno() if stdout and not stdout.closed else None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the last run; None if the container runs or has never run."""
        return self._terminated["exitCode"] if self._terminated else None

    @property
    def is_due(self) -> bool:
        """Return whether the container has never run, or its restart is due."""
        is_waiting = self._process is None and not self.has_ended
        return is_waiting and (self._due_at is None or time.monotonic() >= self._due_at)

    def start(self) -> None:
        """Start or restart the container; if its program cannot be started, it ends at once with StartError."""
        self._due_at = None
        if self._terminated:
            self._last, self._terminated = self._terminated, None
            self._restart_count += 1
        self._started_at = _now()
        self._log = LogFile(self._logs / f"{self._restart_count}.log")
        try:
            self._process = self._spawn()
        except (OSError, subprocess.SubprocessError) as error:
            self._end({"exitCode": 128, "reason": "StartError", "message": start_error(self.plan.argv[0], error)})
            return
        self.has_started = True

    def read(self) -> None:
        """Copy the available output into the log."""
        if self.output is None or self._process is None or self._process.stdout is None or self._log is None:
            return
        with suppress(BlockingIOError):
            if chunk := os.read(self.output, _CHUNK):
                self._log.write(chunk)
            else:
                self._process.stdout.close()

    def notice_exit(self) -> None:
        """Record the time at which the main process ended, if it has."""
        if self._process and not self._exited_at and self._process.poll() is not None:
            self._exited_at = _now()

    def close_if_exited(self) -> None:
        """After the main process's end, kill the remaining processes, complete the log and record the exit code."""
        process = self._process
        if process is None or not self._exited_at:
            return
        if self._drain_until is None:
            self._drain_until = time.monotonic() + _DRAIN_TIMEOUT
            self.kill()
        self.read()
        if self.output is not None and time.monotonic() < self._drain_until:
            return
        if process.stdout:
            process.stdout.close()
        self._process = self._drain_until = None
        code = process.returncode or 0
        if code < 0:
            self._end({"exitCode": 128 - code, "signal": -code, "reason": "Error"})
        else:
            self._end({"exitCode": code, "reason": "Error" if code else "Completed"})

    def terminate(self) -> None:
        """Send SIGTERM to the container's processes, and never start the container again."""
        self._policy = "Never"
        if self._process is None:
            self._due_at = None
            self.has_ended = True
        elif self._drain_until is None:
            self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes of the container, including those that left its process group."""
        if self._process is not None:
            self._signal_group(signal.SIGKILL)
            processes.kill(processes.marked(self.plan.env[MARK], processes.descendants()))

    def wire(self) -> dict[str, Any]:
        """Return the container's entry in `containerStatuses` of its pod."""
        is_running = self._process is not None
        last = self._terminated if self._due_at is not None else self._last
        return {
            "name": self.plan.container,
            "image": self.plan.image,
            "ready": is_running,
            "restartCount": self._restart_count,
            "state": self._state(),
            "lastState": {"terminated": last} if last else {},
        }

    def _state(self) -> dict[str, Any]:
        if self._process is not None:
            return {"running": {"startedAt": self._started_at}}
        if self._terminated is None:
            return {"waiting": {"reason": "ContainerCreating"}}
        if self._due_at is not None:
            return {"waiting": waiting(self._terminated, self.plan, delay(self._restart_count, self._backoff))}
        return {"terminated": self._terminated}

    def _spawn(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 - running the user's program is the purpose
            self.plan.argv,
            env=dict(self.plan.env),
            cwd=self.plan.working_dir,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            preexec_fn=partial(processes.die_with, os.getpid()),  # noqa: PLW1509 - one thread only
        )
        assert process.stdout is not None  # noqa: S101 - stdout is a pipe
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def _signal_group(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _end(self, facts: dict[str, Any]) -> None:
        assert self._log is not None  # noqa: S101 - opened by start()
        self._log.finish()
        file = Path(self.plan.message_file)
        message = read(file)[:_MAX_MESSAGE].decode("utf-8", "replace")
        file.unlink(missing_ok=True)
        if not message and facts["exitCode"] and self.plan.logs_as_message:
            message = self._log.message()
        written = {"message": message} if message else {}
        finished_at = self._exited_at or _now()
        self._terminated = {**written, **facts, "startedAt": self._started_at, "finishedAt": finished_at}
        self._log, self._exited_at = None, ""
        if should_restart(self._policy, facts["exitCode"]):
            self._due_at = time.monotonic() + delay(self._restart_count, self._backoff)
        else:
            self.has_ended = True


def should_restart(policy: str, exit_code: int) -> bool:
    """Return whether a container that ended with this exit code is restarted in its pod."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def delay(restarts: int, first: float) -> float:
    """Return the seconds before the next restart: 0 for the first one, then `first`, then doubled up to a limit."""
    return 0.0 if restarts == 0 else min(first * 2 ** min(restarts - 1, 16), first * _LONGEST)


def waiting(terminated: Mapping[str, Any], plan: Launch, seconds: float) -> dict[str, str]:
    """Return the waiting state of a container before its restart."""
    if terminated["reason"] == "StartError":
        return {"reason": "RunContainerError", "message": terminated["message"]}
    message = f"back-off {seconds:g}s restarting failed container={plan.container} pod={plan.pod}"
    return {"reason": "CrashLoopBackOff", "message": message}


def start_error(program: str, error: Exception) -> str:
    """Return the container runtime's message for a program that could not be started."""
    if getattr(error, "errno", None) != errno.ENOENT:
        return f'exec: "{program}": {(getattr(error, "strerror", None) or str(error)).lower()}'
    if "/" not in program:
        return f'exec: "{program}": executable file not found in $PATH'
    return f'exec: "{program}": stat {program}: no such file or directory'


class Pod:
    """A pod from its creation to its removal."""

    def __init__(self, job: Manifest, place: Place, *, setup: Setup, files: JobFiles, incarnation: int) -> None:
        self.object = pod_object(job, place)
        self.name: str = self.object["metadata"]["name"]
        self.uid: str = self.object["metadata"]["uid"]
        self._plan = PodPlan(
            job=job, pod=self.object, place=place, setup=setup, directory=files.pod_directory(self.name)
        )
        policy = job["spec"]["pytorchReplicaSpecs"][place.role]["restartPolicy"]
        self._policy = "Never" if policy == "ExitCode" else policy  # handled by the operator
        self._logs = files.logs_of(self.name) / f"{incarnation}_{self.uid}"
        self._init: list[Container] = []
        self._main: list[Container] = []
        self.devices: tuple[int, ...] = ()
        self.is_placed = False
        self.problem = ""
        self._kill_at = float("inf")

    @property
    def containers(self) -> Sequence[Container]:
        """Return all containers of the pod in the order in which they start."""
        return [*self._init, *self._main]

    @property
    def is_going(self) -> bool:
        """Return whether the pod is being removed."""
        return bool(self.object["metadata"].get("deletionTimestamp"))

    @property
    def is_over(self) -> bool:
        """Return whether no container of the pod runs or will run again."""
        return self.phase in ("Succeeded", "Failed") or (self.is_going and all(c.pid is None for c in self.containers))

    @property
    def phase(self) -> str:
        """Return the pod's phase, derived from its containers."""
        if any(container.has_ended and container.exit_code != 0 for container in self._init):
            return "Failed"
        if not self.is_placed or not all(container.has_ended for container in self._init):
            return "Pending"
        if all(container.has_ended for container in self._main):
            return "Failed" if any(container.exit_code != 0 for container in self._main) else "Succeeded"
        return "Running" if any(container.has_started for container in self._main) else "Pending"

    def place(self, devices: tuple[int, ...]) -> None:
        """Assign devices to the pod, create its directories and containers; `advance` starts the containers.

        Raises:
            InvalidSpec: a volume or a value does not exist.
        """
        self.devices = devices
        self.is_placed = True
        spec, plan = self.object["spec"], replace(self._plan, devices=devices)
        shutil.rmtree(plan.directory, ignore_errors=True)
        plan.root.mkdir(parents=True)
        volumes = launch.volume_directories(
            spec, claims=Path(plan.setup.claims), pod=plan.directory, memory=launch.memory_of(self.uid)
        )
        launch.prepare(spec, volumes, plan.setup.stores)
        self._init = [self._container(plan, volumes, each, is_init=True) for each in spec.get("initContainers") or ()]
        self._main = [self._container(plan, volumes, each) for each in spec["containers"]]

    def advance(self) -> bool:
        """Start the containers that are due, and return whether there were any.

        Init containers run one by one, then all others. After the grace period of a removal, kill all containers.
        """
        if time.monotonic() >= self._kill_at:
            for container in self.containers:
                container.kill()
        due = [container for container in self._next() if container.is_due]
        for container in due:
            container.start()
        return bool(due)

    def remove(self, longest_grace: float) -> None:
        """Begin the pod's removal: send SIGTERM and start no container again; see `advance` for the grace period."""
        if not self.is_going:
            grace = self.object["spec"].get("terminationGracePeriodSeconds")
            self._kill_at = time.monotonic() + min(longest_grace if grace is None else grace, longest_grace)
            self.object["metadata"]["deletionTimestamp"] = _now()
            for container in self.containers:
                container.terminate()

    def forget(self) -> None:
        """Delete the pod's directories on disk and in memory; its logs and claims stay."""
        for directory in (self._plan.directory, launch.memory_of(self.uid)):
            shutil.rmtree(directory, ignore_errors=True)

    def wire(self) -> Manifest:
        """Return the pod's object with its status."""
        status: dict[str, Any] = {"phase": self.phase, "conditions": self._conditions()}
        if self.is_placed:
            created = self.object["metadata"]["creationTimestamp"]
            status |= {"startTime": created, "podIP": LOOPBACK, "hostIP": LOOPBACK}
        if self._init:
            status["initContainerStatuses"] = [container.wire() for container in self._init]
        if self._main:
            status["containerStatuses"] = [container.wire() for container in self._main]
        return {**self.object, "metadata": dict(self.object["metadata"]), "status": status}

    def _next(self) -> Sequence[Container]:
        if self.is_going or self.phase == "Failed":
            return ()
        return next(([container] for container in self._init if not container.has_ended), self._main)

    def _conditions(self) -> list[dict[str, str]]:
        if self.is_placed:
            return [{"type": "PodScheduled", "status": "True"}]
        if not self.problem:
            return []
        return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": self.problem}]

    def _container(
        self, plan: PodPlan, volumes: Mapping[str, Path], container: Mapping[str, Any], *, is_init: bool = False
    ) -> Container:
        mounts = launch.mounted_paths(container, volumes)
        planned = launch.launch(plan, container, mounts, is_init=is_init)
        _create_paths(plan, container, mounts, planned.working_dir)
        policy = "OnFailure" if is_init and self._policy == "Always" else self._policy
        return Container(
            planned, logs=self._logs / container["name"], policy=policy, backoff=plan.setup.restart_backoff
        )


def pod_object(job: Manifest, place: Place) -> Manifest:
    """Return the pod as created by the operator and stored by the API server."""
    meta, role = job["metadata"], place.role.lower()
    template = job["spec"]["pytorchReplicaSpecs"][place.role]["template"]
    requested = template.get("metadata") or {}
    owner = {name: job[name] for name in ("apiVersion", "kind")} | {name: meta[name] for name in ("name", "uid")}
    labels = {
        **(requested.get("labels") or {}),
        f"{_LABELS}/operator-name": "pytorchjob-controller",
        f"{_LABELS}/job-name": meta["name"],
        ROLE_LABEL: role,
        INDEX_LABEL: str(place.index),
    }
    if place.role == "Master" or (place.index == 0 and "Master" not in job["spec"]["pytorchReplicaSpecs"]):
        labels[f"{_LABELS}/job-role"] = "master"
    metadata = {
        "name": f"{meta['name']}-{role}-{place.index}",
        "namespace": meta["namespace"],
        "uid": str(uuid.uuid4()),
        "creationTimestamp": _now(),
        "labels": labels,
        "annotations": dict(requested.get("annotations") or {}),
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    spec = {**template["spec"], "nodeName": os.uname().nodename}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _create_paths(plan: PodPlan, container: Mapping[str, Any], mounts: Mapping[str, str], working_dir: str) -> None:
    image = plan.setup.image(container["image"])
    directories = [host for host in mounts.values() if not Path(host).is_file()]
    directories += [working_dir, *(f"{plan.root}{place}" for place in image.directories)]
    for directory in directories:
        Path(directory).mkdir(parents=True, exist_ok=True)  # not links: files written there stay in the pod
    links = {**image.files, **mounts}
    for place in sorted(links):
        _link(plan.root, plan.root / place.lstrip("/"), Path(links[place]))
    _write_scripts(plan.programs / container["name"], image.python)


def _link(root: Path, place: Path, target: Path) -> None:
    if any(parent.is_symlink() for parent in place.parents if parent != root and parent.is_relative_to(root)):
        return  # a linked parent already contains it
    if target.is_dir() and place.is_dir() and not place.is_symlink():
        for child in target.iterdir():
            _link(root, place / child.name, child)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        place.symlink_to(target)


def _write_scripts(directory: Path, python: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, options in _SCRIPTS.items():
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec "{python}" {options}"$@"\n')
        script.chmod(0o755)


def _now() -> str:
    return instant(datetime.now(UTC))
