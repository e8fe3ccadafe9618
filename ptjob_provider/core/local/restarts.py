"""Restart rules of the kubelet: decision, delay and messages. Pure."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

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
