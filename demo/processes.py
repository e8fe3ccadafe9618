"""Runs a long-running program, and finds and ends it with everything it forks, by process id."""

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
    """One Airflow component: a process that leads its own session, and its forks."""

    def __init__(self, name: str, argv: list[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.argv = argv
        self.env = dict(env)
        self.log = log
        self.started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the component's first process.

        Raises:
            StackFailed: it has not been started.
        """
        if self._process is None:
            raise StackFailed(f"{self.name} has not been started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether its first process exists; a frozen one does."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, and append its output to its log."""
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
        """Return its living processes: its session, orphans included, and the descendants that left the session."""
        return session_processes(self.pid) if self._process else []

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to all its living processes."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def freeze(self) -> None:
        """Freeze all its processes, like a paused virtual machine."""
        self.signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume frozen processes."""
        self.signal_all(signal.SIGCONT)

    def kill(self) -> None:
        """Kill all its processes with SIGKILL, like a lost machine; none of them runs afterwards."""
        end_processes(self.processes(), grace=0)
        if self._process is not None:
            self._process.wait(10)

    def stop(self, grace: float = 20) -> None:
        """Terminate its first process, and kill the rest after `grace` seconds; nothing of it runs afterwards."""
        self.terminate()
        self.wait_stopped(grace)

    def terminate(self) -> None:
        """Send SIGTERM to its first process and return at once.

        Do not call it twice: a scheduler would hang.
        """
        if self._process is not None:
            self.thaw()
            self._process.send_signal(signal.SIGTERM)

    def wait_stopped(self, grace: float = 20) -> None:
        """Wait `grace` seconds for its first process to end, then kill the rest; nothing of it runs afterwards."""
        if self._process is None:
            return
        members = self.processes()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        end_processes([*members, *self.processes()], grace=0)
        self._process.wait(10)

    def restart(self, grace: float = 20) -> None:
        """Stop and start it."""
        self.stop(grace)
        self.start()

    def tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of its own output."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def session_processes(leader: int) -> list[psutil.Process]:
    """Return the living processes of the session led by this process, now or before, and its descendants."""
    found: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(leader)
        found = {process.pid: process for process in [parent, *parent.children(recursive=True)]}
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(pid) == leader:
                found.setdefault(pid, psutil.Process(pid))
    return [process for process in found.values() if _is_alive(process)]


def end_processes(processes: Iterable[psutil.Process], *, grace: float) -> None:
    """End these processes: by SIGTERM first if there is a `grace`, then by SIGKILL; none of them runs afterwards."""
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
    # psutil.wait_procs would wait for an orphan that its new parent never reaps and that stays a zombie.
    deadline = time.monotonic() + timeout
    while (left := [process for process in processes if _is_alive(process)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def is_same(pid: int, created: float) -> bool:
    """Return whether the process of that id is the one created then."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return abs(psutil.Process(pid).create_time() - created) < 1
    return False
