"""Start a long-running program, and find and end it and all its forks by process id."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import psutil

from demo.infrastructure import InfrastructureFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

LOG_TAIL_LINES = 40


class StackFailed(InfrastructureFailed):
    """A component ended or did not become healthy; the message ends with the tail of its log."""


class Component:
    """An Airflow component: a process that leads a session of its own, and its forks."""

    def __init__(self, name: str, argv: list[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.argv = argv
        self.env = dict(env)
        self.log = log
        self.started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the process id of the component's first process.

        Raises:
            StackFailed: the component has not been started.
        """
        if self._process is None:
            raise StackFailed(f"{self.name} has not been started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether the first process runs or is frozen."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the component, and append its output to its log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.argv,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started_at = time.time()

    def processes(self) -> list[psutil.Process]:
        """Return the living processes: of the session, including orphans, and descendants that left the session."""
        return session_processes(self.pid) if self._process else []

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to all living processes of the component."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def freeze(self) -> None:
        """Stop all processes of the component with SIGSTOP, like a paused virtual machine."""
        self.signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume frozen processes."""
        self.signal_all(signal.SIGCONT)

    def kill(self) -> None:
        """Kill all processes of the component, as if its machine was lost, and wait for their end."""
        end_processes(self.processes(), grace=0)
        if self._process is not None:
            self._process.wait(10)

    def stop(self, grace: float = 20) -> None:
        """Terminate the first process, kill the others after `grace` seconds, and wait for their end."""
        self.terminate()
        self.wait_stopped(grace)

    def terminate(self) -> None:
        """Send SIGTERM to the first process and return at once.

        Call it only once, because a second SIGTERM makes a scheduler hang.
        """
        if self._process is not None:
            self.thaw()
            self._process.send_signal(signal.SIGTERM)

    def wait_stopped(self, grace: float = 20) -> None:
        """Wait up to `grace` seconds for the first process to end, then kill all others and wait for their end."""
        if self._process is None:
            return
        members = self.processes()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        end_processes([*members, *self.processes()], grace=0)
        self._process.wait(10)

    def restart(self, grace: float = 20) -> None:
        """Stop the component and start it again."""
        self.stop(grace)
        self.start()

    def tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the component's output."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def session_processes(leader: int) -> list[psutil.Process]:
    """Return the living processes of the session that this process leads or has led, and its descendants."""
    members: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(leader)
        members = {process.pid: process for process in [parent, *parent.children(recursive=True)]}
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(pid) == leader:
                members.setdefault(pid, psutil.Process(pid))
    return [process for process in members.values() if _is_alive(process)]


def end_processes(processes: Iterable[psutil.Process], *, grace: float) -> None:
    """End these processes with SIGTERM, if `grace` is not 0, and then with SIGKILL; wait for their end."""
    left = list(processes)
    if grace:
        _signal_each(left, signal.SIGTERM)
        left = _wait_ended(left, grace)
    _signal_each(left, signal.SIGKILL)
    _wait_ended(left, 10)


def _signal_each(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _wait_ended(processes: list[psutil.Process], timeout: float) -> list[psutil.Process]:
    # psutil.wait_procs would also wait for a zombie: an orphan that its new parent never reaps.
    deadline = time.monotonic() + timeout
    while (left := [process for process in processes if _is_alive(process)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def is_same(pid: int, created: float) -> bool:
    """Return whether the process with this id was created at this time."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return abs(psutil.Process(pid).create_time() - created) < 1
    return False
