"""A long-running program and everything it forks, found and ended by process id."""

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
    """A component ended or did not become healthy; the text ends with the tail of its log."""


class Component:
    """One Airflow component: a process that leads its own session, and what it forked."""

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
        """Whether its first process is there; a frozen one is."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; its output is appended to its log."""
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
        """Return what lives of it: its session, orphans included, and the descendants that left the session."""
        return session_processes(self.pid) if self._process else []

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to everything that lives of it."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def freeze(self) -> None:
        """Stop the clock of all its processes, as a paused virtual machine would."""
        self.signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let frozen processes go on."""
        self.signal_all(signal.SIGCONT)

    def kill(self) -> None:
        """End everything of it with SIGKILL, as a lost machine would; nothing of it runs afterwards."""
        end_processes(self.processes(), grace=0)
        if self._process is not None:
            self._process.wait(10)

    def stop(self, grace: float = 20) -> None:
        """Ask its first process to end, and end what is left after `grace` seconds; nothing of it runs afterwards."""
        self.terminate()
        self.wait_stopped(grace)

    def terminate(self) -> None:
        """Ask its first process to end and return at once. Asked twice, a scheduler hangs: do not."""
        if self._process is not None:
            self.thaw()
            self._process.send_signal(signal.SIGTERM)

    def wait_stopped(self, grace: float = 20) -> None:
        """Wait `grace` seconds for its first process to end, then end what is left; nothing of it runs afterwards."""
        if self._process is None:
            return
        members = self.processes()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        end_processes([*members, *self.processes()], grace=0)
        self._process.wait(10)

    def restart(self, grace: float = 20) -> None:
        """Stop it and start it again."""
        self.stop(grace)
        self.start()

    def tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of its own output."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def session_processes(leader: int) -> list[psutil.Process]:
    """Return the living processes of the session that this process leads or led, and the leader's descendants."""
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
    """End these: SIGTERM first if there is a `grace`, then SIGKILL; none of them runs afterwards."""
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
    # Not psutil.wait_procs: an orphan whose new parent never reaps it stays a zombie, which it would wait for.
    deadline = time.monotonic() + timeout
    while (left := [process for process in processes if _is_alive(process)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def is_same(pid: int, created: float) -> bool:
    """Whether the process of that id is the one that was born then."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return abs(psutil.Process(pid).create_time() - created) < 1
    return False
