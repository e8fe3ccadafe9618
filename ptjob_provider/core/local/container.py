"""Run one container of a pod like the kubelet: its process, its log, its restarts.

A record is `<RFC3339nano> stdout F text`, with `P` for a partial line.
Both streams of a container share one pipe, so that their order is kept. A reader of the file needs no lock: every
complete record is final.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.local import processes
from ptjob_provider.core.local.operator import instant
from ptjob_provider.core.local.processes import ProcessId
from ptjob_provider.core.local.store import make_private, private

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO

    from ptjob_provider.core.local.launch import Launch

_NOT_FOUND = (errno.ENOENT, errno.EACCES, errno.ENOTDIR)
_LONGEST = 30
"""Maximum delay in units of the first: 300 s where that is 10 s."""


def pod_policy(replica_policy: str) -> str:
    """Return the pods' restart policy: the operator handles ExitCode, so the kubelet does nothing."""
    return "Never" if replica_policy == "ExitCode" else replica_policy


def should_restart(policy: str, exit_code: int) -> bool:
    """Return whether a container with this end is restarted in its pod."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def delay(restarts: int, first: float) -> float:
    """Return the seconds before the next restart: the first is immediate, then they double up to a limit."""
    return 0.0 if restarts == 0 else min(first * 2 ** min(restarts - 1, 16), first * _LONGEST)


def waiting(terminated: Mapping[str, Any], launch: Launch, seconds: float) -> dict[str, str]:
    """Return the waiting state of a container before its restart."""
    if terminated["reason"] == "StartError":
        return {"reason": "RunContainerError", "message": terminated["message"]}
    message = f"back-off {seconds:g}s restarting failed container={launch.container} pod={launch.pod}"
    return {"reason": "CrashLoopBackOff", "message": message}


def start_error(launch: Launch, error: Exception) -> str:
    """Return the container runtime's message for a program that could not be started."""
    program = launch.argv[0]
    if not isinstance(error, OSError):
        return f'exec: "{program}": {error}'
    if error.filename == launch.working_dir and program != launch.working_dir:
        return f'chdir to cwd ("{launch.working_dir}"): {_words(error)}'
    if error.errno in _NOT_FOUND and "/" not in program:
        return f'exec: "{program}": executable file not found in $PATH'
    if error.errno == errno.ENOENT:
        return f'exec: "{program}": stat {program}: no such file or directory'
    return f'exec: "{program}": {_words(error)}'


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


PART = 16 * 1024
"""Maximum bytes of a line in one record; containerd's number."""

_MESSAGE_BYTES = 2048
_MESSAGE_LINES = 80


class LogFile:
    """The log of one run of a container."""

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        make_private(path.parent)
        self._file = open(path, "wb", opener=private)  # noqa: SIM115 - open as long as the container writes
        self._clock = clock
        self._last = 0
        self._open_line = b""
        self._tail = b""

    def write(self, chunk: bytes) -> None:
        """Append output; complete lines and full parts are in the file afterwards."""
        self._tail = (self._tail + chunk)[-_MESSAGE_BYTES:]
        *lines, rest = (self._open_line + chunk).split(b"\n")
        stamp = self._stamp()
        records = [record for line in lines for record in _records(line, stamp)]
        while len(rest) >= PART:
            records.append(stamp + b" stdout P " + rest[:PART] + b"\n")
            rest = rest[PART:]
        self._open_line = rest
        if records:
            self._file.write(b"".join(records))
            self._file.flush()

    def finish(self) -> None:
        """Write the remaining text without a line end, and close."""
        if self._open_line:
            self._file.write(b"".join(_records(self._open_line, self._stamp())))
            self._open_line = b""
        self._file.close()

    def message(self) -> str:
        """Return the end of the log like `FallbackToLogsOnError`: 2 KiB or 80 lines, whichever is less."""
        lines = self._tail.splitlines(keepends=True)[-_MESSAGE_LINES:]
        return b"".join(lines).decode("utf-8", errors="replace")

    def _stamp(self) -> bytes:
        self._last = max(self._clock(), self._last + 1)  # a clock that is set back must not reorder the log
        return timestamp(self._last).encode()


def timestamp(nanoseconds: int) -> str:
    """Format an instant with nine fractional digits."""
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:09}Z"


def _records(line: bytes, stamp: bytes) -> list[bytes]:
    if len(line) <= PART:
        return [stamp + b" stdout F " + line + b"\n"]
    parts = [line[start : start + PART] for start in range(0, len(line), PART)]
    return [stamp + b" stdout P " + part + b"\n" for part in parts[:-1]] + [stamp + b" stdout F " + parts[-1] + b"\n"]


_CHUNK = 1024 * 1024
_DRAIN_TIMEOUT = 2.0
_MAX_MESSAGE = 4096


class Container:
    """A container that is waiting, running or terminated; `wire` returns its entry in a pod's `containerStatuses`."""

    def __init__(self, launch: Launch, *, logs: Path, policy: str, backoff: float) -> None:
        self.launch = launch
        self._logs = logs
        self._policy = policy
        self._backoff = backoff
        self._process: subprocess.Popen[bytes] | None = None
        self.identity: ProcessId | None = None
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
        """Return the main process's pid, while there is one."""
        return self._process.pid if self._process else None

    @property
    def output(self) -> int | None:
        """Return the descriptor of its output, while it is open."""
        pipe = self._process.stdout if self._process else None
        return pipe.fileno() if pipe and not pipe.closed else None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the last finished run."""
        ended = self._terminated or self._last
        return int(ended["exitCode"]) if ended else None

    @property
    def due_in(self) -> float | None:
        """Return the seconds until its restart; None if there will be none."""
        return None if self._due_at is None else max(self._due_at - time.monotonic(), 0.0)

    @property
    def is_due(self) -> bool:
        """Return whether it has never run, or its restart is due."""
        return self._process is None and not self.has_ended and not self.due_in

    def start(self) -> None:
        """Start it, or restart it; a program that cannot be started ends it at once with StartError."""
        self._due_at = None
        if self._terminated:
            self._last, self._terminated = self._terminated, None
            self._restart_count += 1
        self._started_at = _now()
        self._log = LogFile(self._logs / f"{self._restart_count}.log")
        try:
            self._process = self._spawn()
        except (OSError, subprocess.SubprocessError) as error:
            self._end({"exitCode": 128, "reason": "StartError", "message": start_error(self.launch, error)})
            return
        self.has_started = True
        _widen(self._process.stdout)
        self.identity = ProcessId.of(self._process.pid)

    def read(self) -> None:
        """Copy its available output into its log."""
        if self._process is None or self._process.stdout is None or self._log is None:
            return
        try:
            chunk = os.read(self._process.stdout.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if chunk:
            self._log.write(chunk)
        else:
            self._process.stdout.close()

    def notice_exit(self) -> None:
        """Record the end of its main process, if it has ended."""
        if self._process and not self._exited_at and self._process.poll() is not None:
            self._exited_at = _now()

    def close_if_exited(self) -> bool:
        """Kill the rest of a run whose main process ended, and complete its log; return whether it is over."""
        process = self._process
        if process is None or not self._exited_at:
            return False
        if self._drain_until is None:
            self._drain_until = time.monotonic() + _DRAIN_TIMEOUT
            self.kill()
        if self.output is not None:
            self.read()
            if self.output is not None and time.monotonic() < self._drain_until:
                return False
        self._close(process)
        return True

    def terminate(self) -> None:
        """Send its processes SIGTERM, and never start it again."""
        self._policy = "Never"
        if self._process is None:
            self._give_up()
        elif self._drain_until is None:
            try:
                os.killpg(self._process.pid, signal.SIGTERM)
            except ProcessLookupError:
                return

    def kill(self) -> None:
        """Kill all its processes now, including those outside its process group."""
        for process in self._remains():
            process.send(signal.SIGKILL)

    def wire(self) -> dict[str, Any]:
        """Return its entry of `containerStatuses`."""
        status = {
            "name": self.launch.container,
            "image": self.launch.image,
            "imageID": "",
            "ready": self._process is not None,
            "started": self._process is not None,
            "restartCount": self._restart_count,
            "state": self._state(),
            "lastState": {"terminated": self._last} if self._last else {},
        }
        if self._waits_for_restart:
            status["lastState"] = {"terminated": self._terminated}
        return status

    @property
    def _waits_for_restart(self) -> bool:
        return self._due_at is not None and self._terminated is not None

    def _state(self) -> dict[str, Any]:
        if self._process is not None:
            return {"running": {"startedAt": self._started_at}}
        if self._waits_for_restart and self._terminated:
            return {"waiting": waiting(self._terminated, self.launch, self._delay())}
        if self._terminated:
            return {"terminated": self._terminated}
        return {"waiting": {"reason": self.launch.waiting_reason}}

    def _delay(self) -> float:
        return delay(self._restart_count, self._backoff)

    def _spawn(self) -> subprocess.Popen[bytes]:
        launch = self.launch
        return subprocess.Popen(  # noqa: S603 - running the user's program is the purpose
            launch.argv,
            env=dict(launch.env),
            cwd=launch.working_dir,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            preexec_fn=partial(processes.die_with, os.getpid()),  # noqa: PLW1509 - one thread only
        )

    def _remains(self) -> list[ProcessId]:
        mine = processes.marked(self.launch.mark, processes.descendants(os.getpid()))
        leaders = [self.identity] if self.identity else []
        return list({*mine, *processes.in_sessions_of(leaders)})

    def _close(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout:
            process.stdout.close()
        self._process = self.identity = self._drain_until = None
        code = process.returncode or 0
        if code < 0:
            self._end({"exitCode": 128 - code, "signal": -code, "reason": "Error"})
        else:
            self._end({"exitCode": code, "reason": "Error" if code else "Completed"})

    def _end(self, facts: dict[str, Any]) -> None:
        assert self._log is not None  # noqa: S101 - opened by start()
        self._log.finish()
        message = _told(self.launch.told)
        if not message and facts["exitCode"] and self.launch.logs_as_message:
            message = self._log.message()
        told = {"message": message} if message else {}
        finished_at = self._exited_at or _now()
        self._terminated = {**told, **facts, "startedAt": self._started_at, "finishedAt": finished_at}
        self._log, self._exited_at = None, ""
        if should_restart(self._policy, facts["exitCode"]):
            self._due_at = time.monotonic() + self._delay()
        else:
            self.has_ended = True

    def _give_up(self) -> None:
        self._due_at = None
        self.has_ended = True


def _told(path: str) -> str:
    """Return a run's termination message, and clear it."""
    try:
        with Path(path).open("rb") as file:
            said = file.read(_MAX_MESSAGE).decode("utf-8", "replace")
        Path(path).unlink()
    except OSError:
        return ""
    return said


def _widen(pipe: IO[bytes] | None) -> None:
    assert pipe is not None  # noqa: S101 - a pipe was asked for
    os.set_blocking(pipe.fileno(), False)
    with suppress(OSError):  # a user may have only a limited number of large pipes
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CHUNK)


def _now() -> str:
    return instant(datetime.now(UTC))
