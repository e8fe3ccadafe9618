"""Run programs and wait for conditions; a failure names the program or the condition."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, TypeVar

from demo.infrastructure import InfrastructureFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")
TAIL_LINES = 30


class ClusterFailed(InfrastructureFailed):
    """A part of the cluster failed; the message names it and ends with the last lines of its output."""


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a program to its end and return its standard output.

    Raises:
        ClusterFailed: the program does not exist, exited with a code other than 0, or exceeded `timeout` seconds.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            env=env,
            cwd=cwd,
            timeout=timeout,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        raise ClusterFailed(f"{words[0]} cannot be started: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterFailed(f"`{' '.join(words)}` still ran after {timeout:.0f} s") from error
    if done.returncode:
        raise ClusterFailed(
            f"`{' '.join(words)}` ended with {done.returncode}:\n{last_lines(done.stdout + done.stderr)}"
        )
    return done.stdout


def wait_until(
    what: str, check: Callable[[], T | None], *, timeout: float, alive: Callable[[], None] = lambda: None
) -> T:
    """Wait for a part of the cluster; return the first result of `check` that is neither None nor False.

    Args:
        what: the condition, as the end of the sentence "waited 60 s for …".
        check: called ten times a second; a ClusterFailed means "not yet", and becomes part of the message on a timeout.
        timeout: seconds.
        alive: raises if waiting has become pointless.

    Raises:
        ClusterFailed: the timeout expired.
    """
    deadline = time.monotonic() + timeout
    problem = ""
    while True:
        alive()
        try:
            result = check()
        except ClusterFailed as error:
            result, problem = None, f": {error}"
        if result is not None and result is not False:
            return result
        if time.monotonic() > deadline:
            raise ClusterFailed(f"waited {timeout:.0f} s for {what}{problem}")
        time.sleep(0.1)


def until(what: str, check: Callable[[], T | None], *, timeout: float) -> T:
    """Wait as `wait_until` does, but for the product: if it fails, its test is not repeated.

    Raises:
        AssertionError: the timeout expired.
    """
    try:
        return wait_until(what, check, timeout=timeout)
    except ClusterFailed as error:
        raise AssertionError(str(error)) from error


def last_lines(text: str, count: int = TAIL_LINES) -> str:
    """Return the last lines of a text."""
    return "\n".join(text.splitlines()[-count:])


def bare_environment(home: Path, **more: str) -> dict[str, str]:
    """Return an environment with PATH and HOME, without the caller's proxies and settings."""
    path = os.pathsep.join(["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])
    return {"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", **more}


def write(path: Path, text: str, *, mode: int = 0o600) -> Path:
    """Write a file and create its folder; by default only the owner may read it. Return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=mode)
    path.write_text(text)
    return path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; it is released when the process ends, in whatever way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Progress:
    """Writes each step to standard error when it begins, with the seconds since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, step: str) -> None:
        sys.stderr.write(f"[{time.monotonic() - self._start:6.1f} s] {step}\n")
        sys.stderr.flush()
