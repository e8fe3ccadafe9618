"""Run one pod: create its directories, start its containers once each, report its status as the kubelet does."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.local import launch, processes
from ptjob_provider.core.local.launch import LOOPBACK, MARK, PodPlan
from ptjob_provider.core.local.logs import LogFile
from ptjob_provider.core.local.status import instant
from ptjob_provider.core.local.store import read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.launch import Launch

_SCRIPTS = {"python": "", "python3": "", "torchrun": "-m torch.distributed.run "}
_CHUNK = 1024 * 1024
_MAX_MESSAGE = 4096


class LocalContainer:
    """A container of a pod: waiting, running or terminated; it runs once."""

    def __init__(self, plan: Launch, log: Path) -> None:
        self.plan = plan
        self._log_file = log
        self._process: subprocess.Popen[bytes] | None = None
        self._log: LogFile | None = None
        self._started_at = ""
        self._terminated: dict[str, Any] | None = None
        self._exited_at = ""
        self.is_cancelled = False

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
        """Return the exit code; None if the container runs or has never run."""
        return self._terminated["exitCode"] if self._terminated else None

    @property
    def has_ended(self) -> bool:
        """Return whether the container has run, or will never run."""
        return self._terminated is not None or (self.is_cancelled and self._process is None)

    def start(self) -> None:
        """Start the container; if its program cannot be started, it ends at once with StartError."""
        self._started_at = _now()
        self._log = LogFile(self._log_file)
        try:
            self._process = self._spawn()
        except (OSError, subprocess.SubprocessError) as error:
            self._end({"exitCode": 128, "reason": "StartError", "message": start_error(self.plan.argv[0], error)})

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
            if self._log is not None:
                self._log.write_unfinished()
            return
        self.kill()
        self.read()  # a chunk is more than a pipe holds
        if process.stdout:
            process.stdout.close()
        self._process = None
        code = process.returncode or 0
        if code < 0:
            self._end({"exitCode": 128 - code, "signal": -code, "reason": "Error"})
        else:
            self._end({"exitCode": code, "reason": "Error" if code else "Completed"})

    def terminate(self) -> None:
        """Send SIGTERM to the container's processes; if it has not started, it never will."""
        self.is_cancelled = True
        if not self._exited_at:
            self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes of the container, including those that left its process group."""
        if self._process is not None:
            self._signal_group(signal.SIGKILL)
            processes.kill(processes.with_mark(self.plan.env[MARK], processes.descendants()))

    def wire(self) -> dict[str, Any]:
        """Return the container's entry in `containerStatuses` of its pod."""
        state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
        if self._process is not None:
            state = {"running": {"startedAt": self._started_at}}
        elif self._terminated is not None:
            state = {"terminated": self._terminated}
        named = {"name": self.plan.container, "image": self.plan.image}
        return {**named, "ready": self._process is not None, "restartCount": 0, "state": state, "lastState": {}}

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
        message = read(Path(self.plan.message_file))[:_MAX_MESSAGE].decode("utf-8", "replace")
        if not message and facts["exitCode"]:
            message = self._log.message()
        written = {"message": message} if message else {}
        finished_at = self._exited_at or _now()
        self._terminated = {**written, **facts, "startedAt": self._started_at, "finishedAt": finished_at}
        self._log = None


def start_error(program: str, error: Exception) -> str:
    """Return the container runtime's message for a program that could not be started."""
    if getattr(error, "errno", None) != errno.ENOENT:
        return f'exec: "{program}": {(getattr(error, "strerror", None) or str(error)).lower()}'
    if "/" not in program:
        return f'exec: "{program}": executable file not found in $PATH'
    return f'exec: "{program}": stat {program}: no such file or directory'


class LocalPod:
    """A pod of a job, from the job's start to its end."""

    def __init__(self, plan: PodPlan, *, log: Callable[[str, str], Path]) -> None:
        self.object = plan.pod
        self.name: str = self.object["metadata"]["name"]
        self._plan = plan
        self._log = log
        self._init: list[LocalContainer] = []
        self._main: list[LocalContainer] = []
        self._kill_at = float("inf")

    @property
    def containers(self) -> Sequence[LocalContainer]:
        """Return all containers of the pod in the order in which they start; none before `create`."""
        return [*self._init, *self._main]

    @property
    def is_over(self) -> bool:
        """Return whether no container of the pod runs or will run."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def phase(self) -> str:
        """Return the pod's phase, derived from its containers."""
        if any(each.pid for each in self._init):
            return "Pending"
        if any(each.has_ended and each.exit_code != 0 for each in self._init):
            return "Failed"
        if not any(each.pid or each.has_ended for each in self._main):
            return "Pending"
        if not all(each.has_ended for each in self._main):
            return "Running"
        return "Failed" if any(each.exit_code != 0 for each in self._main) else "Succeeded"

    def create(self) -> None:
        """Create the pod's directories and containers; `advance` starts the containers.

        Raises:
            InvalidSpec: a volume or a value does not exist.
        """
        plan, spec = self._plan, self.object["spec"]
        plan.root.mkdir(parents=True)
        launch.prepare(spec, plan.volumes, plan.setup.stores)
        self._init = [self._container(plan, each, is_init=True) for each in spec.get("initContainers") or ()]
        self._main = [self._container(plan, each) for each in spec["containers"]]

    def advance(self) -> None:
        """Start the containers whose turn it is: init containers one by one, then all others.

        After the grace period of a stop, kill all containers.
        """
        if time.monotonic() >= self._kill_at:
            for container in self.containers:
                container.kill()
        if self._is_going or self.phase == "Failed":
            return
        turn = next(([container] for container in self._init if not container.has_ended), self._main)
        for container in turn:
            if container.pid is None and not container.has_ended:
                container.start()

    def stop(self, longest_grace: float) -> None:
        """Send SIGTERM to what runs, and start nothing any more; see `advance` for the grace period."""
        if self._is_going or self.is_over:
            return
        grace = self.object["spec"].get("terminationGracePeriodSeconds")
        self._kill_at = time.monotonic() + min(longest_grace if grace is None else grace, longest_grace)
        self.object["metadata"]["deletionTimestamp"] = _now()
        for container in self.containers:
            container.terminate()

    def wire(self) -> Manifest:
        """Return the pod's object with its status."""
        status: dict[str, Any] = {
            "phase": self.phase,
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "startTime": self.object["metadata"]["creationTimestamp"],
            "podIP": LOOPBACK,
            "hostIP": LOOPBACK,
            "containerStatuses": [container.wire() for container in self._main],
        }
        if self._init:
            status["initContainerStatuses"] = [container.wire() for container in self._init]
        return {**self.object, "metadata": dict(self.object["metadata"]), "status": status}

    @property
    def _is_going(self) -> bool:
        return "deletionTimestamp" in self.object["metadata"]

    def _container(self, plan: PodPlan, container: Mapping[str, Any], *, is_init: bool = False) -> LocalContainer:
        planned = launch.launch(plan, container, is_init=is_init)
        _create_paths(plan, container, planned.working_dir)
        return LocalContainer(planned, self._log(self.name, container["name"]))


def _create_paths(plan: PodPlan, container: Mapping[str, Any], working_dir: str) -> None:
    image, mounts = plan.setup.image(container["image"]), launch.mounted_paths(container, plan.volumes)
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
