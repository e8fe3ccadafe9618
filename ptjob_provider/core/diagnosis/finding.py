"""Classify one container's end by itself, before it is compared with the other replicas' ends."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ptjob_provider.core import code_sync
from ptjob_provider.core.diagnosis import hints, tail
from ptjob_provider.core.diagnosis.verdict import ADVICE, Cause, passes_by_itself
from ptjob_provider.core.recorder import is_program_missing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.recorder import Termination

_SIGNAL_BASE = 128
_USAGE = 2
_COMMAND_NOT_EXECUTABLE = 126
_COMMAND_NOT_FOUND = 127
_CODE_WORDS = {
    _USAGE: " (usually wrong arguments)",
    _COMMAND_NOT_EXECUTABLE: " (a command is not executable)",
    _COMMAND_NOT_FOUND: " (a command was not found)",
}
_SIGNAL_VERBS: Mapping[int, str] = {signal.SIGKILL: "was killed by", signal.SIGTERM: "was stopped by"}

STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_NODE_REASONS = {"NodeLost", "NodeShutdown", "Shutdown", "Terminated", "DeletionByTaintManager", "DeletionByPodGC"}
_PREEMPTIONS = {"PreemptionByScheduler", "Preempting", "Preempted"}
_EVICTIONS = {
    "Evicted": "was evicted",
    "EvictionByEvictionAPI": "was evicted because its node is drained, or by a person (EvictionByEvictionAPI)",
}
_OWN_LIMIT = re.compile(r"exceeds the (?:total )?limit|exceeded its|usage of EmptyDir")
_SEE_LOG = "See the log for its exception (torchrun repeats it only where torch's `record` decorates the entry point)"
_UNREACHABLE = "See whether the pods can reach that server; a retry may help"
_CORRECT_ARGS = "Correct the program's arguments; a retry would fail the same way"
_LAST_LINE = 160


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Classification of one container's end.

    Attributes:
        cause: for programs.
        did: completes "worker-0 …".
        exception: its type, if an exception ended it.
        process: the rank of the failed process inside the pod; "" for the pod's own process.
        detail: reported by the program, its runtime or its node.
        is_vague: indistinguishable from an end that only follows another replica's.
        resolution: overrides the cause's advice.
        retryable: overrides the cause's default.
    """

    cause: Cause
    did: str
    exception: str = ""
    process: str = ""
    detail: str = ""
    is_vague: bool = False
    resolution: str = ""
    retryable: bool | None = None

    @property
    def advice(self) -> tuple[str, bool]:
        """Return the next step and whether a retry helps: its own, else its cause's."""
        resolution, retryable = ADVICE[self.cause]
        return self.resolution or resolution, retryable if self.retryable is None else self.retryable

    @property
    def passes(self) -> bool:
        """Return whether its cause passes by itself; see `Diagnosis`."""
        return bool(self.retryable) or passes_by_itself(self.cause, retryable=self.advice[1])

    def say(self, more: str = "") -> str:
        """Return `did`, `more` and the detail as text."""
        return f"{self.did}{more}" + (f": {self.detail}" if self.detail else "")

    @property
    def is_consequence(self) -> bool:
        """Return whether an end like this usually follows from another replica's."""
        return self.cause in {Cause.CONNECTION_LOST, Cause.TERMINATED}


def find(end: Termination, lines: Sequence[str]) -> Finding:
    """Classify one container's end; `lines` are the last lines of its log."""
    known = disrupted(end.disruption) if end.disruption else _told_by_kubelet(end)
    known = known or _unfetched(end, lines)
    if known is not None:
        return known
    root = tail.torchrun_root(lines)
    if root:
        return _process(root, lines)
    return _exited(signal_of(end), end.exit_code or 0, lines, tail.python_errors(lines))


def _told_by_kubelet(end: Termination) -> Finding | None:
    """Classify the kubelet's reasons that are more specific than an exit code."""
    if end.reason == "OOMKilled":
        return Finding(cause=Cause.OUT_OF_MEMORY, did=f"ran out of memory (OOMKilled, exit code {end.exit_code})")
    if end.reason in {"StartError", "ContainerCannotRun"}:
        return _unstarted(end)
    if end.reason == "ContainerStatusUnknown":
        return Finding(cause=Cause.NODE_LOST, did="was lost by its node (ContainerStatusUnknown)")
    if end.exit_code is None:
        return Finding(cause=Cause.UNKNOWN, did="ended, and nobody knows how")
    return None


def _unfetched(end: Termination, lines: Sequence[str]) -> Finding | None:
    """Classify a failed code fetch by the message of the sync container."""
    if end.container != code_sync.CONTAINER or not lines or not lines[-1].startswith(code_sync.FAILED):
        return None
    detail, did = tail.clip(lines[-1].removeprefix(code_sync.FAILED)), "could not fetch the code"
    if end.exit_code == code_sync.UNREACHABLE:
        return Finding(cause=Cause.CODE, did=did, detail=detail, resolution=_UNREACHABLE, retryable=True)
    return Finding(cause=Cause.CODE, did=did, detail=detail)


def disrupted(disruption: str) -> Finding:
    """Classify a disruption of a whole pod, `Reason: message`."""
    reason, _, message = disruption.partition(": ")
    detail = tail.clip(message)
    if reason == "SupervisorLost":
        return Finding(cause=Cause.SUPERVISOR_LOST, did="lost the process that ran it", detail=detail)
    if reason == "DeadlineExceeded":
        return Finding(cause=Cause.DEADLINE, did="was active longer than its pod's deadline", detail=detail)
    if reason in _PREEMPTIONS:
        return Finding(cause=Cause.PREEMPTED, did=f"was preempted ({reason})", detail=detail)
    if reason in _NODE_REASONS:
        return Finding(cause=Cause.NODE_LOST, did=f"lost its node ({reason})", detail=detail)
    if _OWN_LIMIT.search(message):
        advice = "Raise that limit or write less; a retry would fail the same way"
        return Finding(cause=Cause.EVICTED, did="was evicted", detail=detail, resolution=advice, retryable=False)
    return Finding(cause=Cause.EVICTED, did=_EVICTIONS.get(reason, f"was evicted ({reason})"), detail=detail)


def _unstarted(end: Termination) -> Finding:
    missing = is_program_missing(end.reason, end.message)
    cause = Cause.PROGRAM_MISSING if missing else Cause.CANNOT_START
    return Finding(cause=cause, did=f"could not be started ({end.reason})", detail=tail.runtime_error(end.message))


def _process(root: tail.RootCause, lines: Sequence[str]) -> Finding:
    """Classify the end of the process that torchrun blames, instead of torchrun's own exit code."""
    code = root.exit_code or 0
    own = tail.lines_of_rank(lines, root.rank)
    errors = (root.error,) if root.error else tail.python_errors(own)
    found = _exited(-code if code < 0 else 0, code, own, errors)
    if found.is_vague:  # several processes write into one log: the last line may be another one's
        found = replace(found, detail="", resolution=_SEE_LOG)
    return replace(found, process=root.rank)


def signal_of(end: Termination) -> int:
    """Return the number of the signal that ended it; 0 for none."""
    return end.signal or _known_signal((end.exit_code or 0) - _SIGNAL_BASE)


def _known_signal(number: int) -> int:
    return number if number in {one.value for one in signal.Signals if one < signal.SIGRTMIN} else 0


def _exited(number: int, code: int, lines: Sequence[str], errors: Sequence[str]) -> Finding:
    """Classify by signal, exception and exit code, in order of precedence.

    SIGKILL beats everything printed before; a program's own exception beats any other signal (torch aborts in its
    destructors after a Python exception: exit code 134).
    """
    did = _did(number, code)
    if number == signal.SIGKILL:
        told = tail.clip(hints.memory_killer(lines), _LAST_LINE)
        return Finding(cause=Cause.OUT_OF_MEMORY if told else Cause.KILLED, did=did, detail=told)
    own = [error for error in errors if not tail.is_connection_loss(error)]
    if own:
        return _raised(did, own, errors, lines)
    if number in STOPS:
        return Finding(cause=Cause.TERMINATED, did=did)
    lost = errors[-1] if errors else tail.logged_connection_loss(lines)
    if lost:
        exception = tail.type_of(lost) if errors else ""
        return Finding(cause=Cause.CONNECTION_LOST, did=did, detail=lost, exception=exception)
    return _silent(did, number, code, lines)


def _raised(did: str, own: Sequence[str], errors: Sequence[str], lines: Sequence[str]) -> Finding:
    """Classify the program's own exceptions: by a matching hint, else by the last of the chain."""
    rest = tail.rest_of(own[-1], lines)
    hint, told = hints.hint_of(own, before=errors[: errors.index(own[0])], rest=rest)
    return Finding(
        cause=hint.cause,
        did=did,
        detail=told,
        exception=tail.type_of(told),
        resolution=hint.resolution,
        retryable=hint.retryable,
    )


def _silent(did: str, number: int, code: int, lines: Sequence[str]) -> Finding:
    """Classify an end without an exception, quoting the program's last line."""
    stated, last = tail.stated_error(lines), tail.clip(lines[-1], _LAST_LINE) if lines else ""
    cause = _cause_of(number, code)
    found = Finding(
        cause=cause,
        did=did,
        detail=stated or (f"its last line is “{last}”" if last else ""),
        is_vague=not stated and (cause is Cause.CRASHED or (cause is Cause.EXIT_CODE and code == 1)),
    )
    if code == _USAGE and tail.tells_usage(lines):
        found = replace(found, resolution=_CORRECT_ARGS, retryable=False)
    known = hints.hint_in(lines)
    if known is None:
        return found
    hint, told = known
    return replace(
        found,
        cause=cause if hint.cause is Cause.PYTHON_EXCEPTION else hint.cause,
        detail=stated or tail.clip(told),
        is_vague=False,
        resolution=hint.resolution,
        retryable=hint.retryable,
    )


def _cause_of(number: int, code: int) -> Cause:
    if number == signal.SIGBUS:
        return Cause.SHARED_MEMORY
    if number:
        return Cause.CRASHED
    return Cause.PROGRAM_MISSING if code in {_COMMAND_NOT_EXECUTABLE, _COMMAND_NOT_FOUND} else Cause.EXIT_CODE


def _did(number: int, code: int) -> str:
    if not number:
        return f"exited with code {code}{_CODE_WORDS.get(code, '')}"
    name = signal.Signals(number).name if _known_signal(number) else f"signal {number}"
    shown = code if code > 0 else _SIGNAL_BASE + number
    return f"{_SIGNAL_VERBS.get(number, 'died of')} {name} (exit code {shown})"
