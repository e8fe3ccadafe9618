"""What one container's end says by itself, before it is compared with the other replicas' ends."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ptjob_provider.core import code_sync
from ptjob_provider.core.diagnosis import tail
from ptjob_provider.core.diagnosis.verdict import ADVICE, Cause
from ptjob_provider.core.recorder import is_program_missing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.recorder import Termination

_SIGNAL_BASE = 128
_COMMAND_NOT_EXECUTABLE = 126
_COMMAND_NOT_FOUND = 127
_CODE_WORDS = {
    2: " (usually wrong arguments)",
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
_SEE_LOG = (
    "See the log for its exception (torchrun repeats it only where torch's `record` decorates the entry point); "
    "a retry would fail the same way"
)
_UNREACHABLE = "See whether the pods can reach that server; a retry may help"
_NO_GPU = (
    "Ask for GPUs (gpus=), or say that there are none with backend_without_gpu='gloo' (--backend-without-gpu gloo), "
    "which turns nccl into gloo; a retry would fail the same way"
)
_LAST_LINE = 160


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One container's end in words.

    Attributes:
        cause: for programs.
        did: completes "worker-0 …".
        process: the rank of the process inside the pod that it is about; "" when it is the pod's own.
        detail: what the program, its runtime or its node said of it.
        is_vague: nothing tells this end from one that only follows another replica's.
        resolution: instead of the cause's usual advice.
        retryable: instead of the cause's usual answer.
    """

    cause: Cause
    did: str
    process: str = ""
    detail: str = ""
    is_vague: bool = False
    resolution: str = ""
    retryable: bool | None = None

    @property
    def advice(self) -> tuple[str, bool]:
        """What to do next, and whether a retry helps: its own, else its cause's."""
        resolution, retryable = ADVICE[self.cause]
        return self.resolution or resolution, retryable if self.retryable is None else self.retryable

    def say(self, more: str = "") -> str:
        """Return what it did, `more` of that, and the detail."""
        return f"{self.did}{more}" + (f": {self.detail}" if self.detail else "")

    @property
    def is_consequence(self) -> bool:
        """Whether an end like this usually follows from another replica's."""
        return self.cause in {Cause.CONNECTION_LOST, Cause.TERMINATED}


@dataclass(frozen=True, kw_only=True)
class _Hint:
    """What an exception's text gives away.

    Attributes:
        in_chain: also when another exception followed from it.
    """

    pattern: re.Pattern[str]
    cause: Cause = Cause.PYTHON_EXCEPTION
    in_chain: bool = False
    resolution: str = ""
    retryable: bool | None = None


_HINTS = (
    _Hint(pattern=tail.NCCL_WITHOUT_GPU, in_chain=True, resolution=_NO_GPU),
    _Hint(
        pattern=re.compile(r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|HIP out of memory"),
        cause=Cause.GPU_OUT_OF_MEMORY,
        in_chain=True,
    ),
    _Hint(
        pattern=re.compile(r"killed by signal: Bus error|raise your shared memory limit|/dev/shm|file </torch_\d+_"),
        cause=Cause.SHARED_MEMORY,
        in_chain=True,
    ),
    _Hint(
        pattern=re.compile(r"DataLoader worker \(pid \d+\) is killed by signal: Killed"),
        in_chain=True,
        resolution="Raise memory= or use fewer data loader workers; a retry would fail the same way",
    ),
    _Hint(
        pattern=re.compile(
            r"^[\w.]*(?:Connection\w*Error|Connect\w*Timeout|ReadTimeout|TimeoutError|URLError|gaierror)\b"
        ),
        resolution="Look at the server that it could not reach; a retry may help",
        retryable=True,
    ),
    _Hint(
        pattern=re.compile(r"uncorrectable ECC error|GPU is lost|fallen off the bus|NVML: Unknown Error"),
        resolution="The node's GPU is faulty; a retry may meet another node",
        retryable=True,
    ),
)


def find(end: Termination, lines: Sequence[str]) -> Finding:
    """Read one container's end; `lines` are the last lines of its log."""
    known = disrupted(end.disruption) if end.disruption else _told_by_kubelet(end)
    known = known or _unfetched(end, lines)
    if known is not None:
        return known
    root = tail.torchrun_root(lines)
    if root:
        return _process(root, lines)
    return _exited(signal_of(end), end.exit_code or 0, lines, tail.python_errors(lines))


def _told_by_kubelet(end: Termination) -> Finding | None:
    """Read the reasons that say more than an exit code."""
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
    """Read why the code could not be fetched, where the container that fetches it says so."""
    if end.container != code_sync.CONTAINER or not lines or not lines[-1].startswith(code_sync.FAILED):
        return None
    detail, did = tail.clip(lines[-1].removeprefix(code_sync.FAILED)), "could not fetch the code"
    if end.exit_code == code_sync.UNREACHABLE:
        return Finding(cause=Cause.CODE, did=did, detail=detail, resolution=_UNREACHABLE, retryable=True)
    return Finding(cause=Cause.CODE, did=did, detail=detail)


def disrupted(disruption: str) -> Finding:
    """Read why a pod as a whole was ended from outside, `Reason: message`."""
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
    """Read the end of the process that torchrun blames, instead of torchrun's own exit code."""
    code = root.exit_code or 0
    own = tail.lines_of_rank(lines, root.rank)
    errors = (root.error,) if root.error else tail.python_errors(own)
    found = _exited(-code if code < 0 else 0, code, own, errors)
    if found.is_vague:  # whose line the last one is nobody knows: several processes write into one log
        found = replace(found, detail="", resolution=_SEE_LOG, retryable=False)
    return replace(found, process=root.rank)


def signal_of(end: Termination) -> int:
    """Return the number of the signal that ended it; 0 if it was none."""
    return end.signal or _known_signal((end.exit_code or 0) - _SIGNAL_BASE)


def _known_signal(number: int) -> int:
    return number if number in {one.value for one in signal.Signals if one < signal.SIGRTMIN} else 0


def _exited(number: int, code: int, lines: Sequence[str], errors: Sequence[str]) -> Finding:
    """Put signal, exception and exit code into their order.

    SIGKILL beats whatever the program printed before; a program's own exception beats any other signal (torch aborts in
    its destructors after a Python exception: exit code 134).
    """
    did = _did(number, code)
    if number == signal.SIGKILL:
        return Finding(cause=Cause.KILLED, did=did)
    own = [error for error in errors if not tail.is_connection_loss(error)]
    if own:
        return _raised(did, own)
    if number in STOPS:
        return Finding(cause=Cause.TERMINATED, did=did)
    lost = errors[-1] if errors else tail.logged_connection_loss(lines)
    if lost:
        return Finding(cause=Cause.CONNECTION_LOST, did=did, detail=lost)
    return _silent(did, number, code, lines)


def _raised(did: str, errors: Sequence[str]) -> Finding:
    """Read the exceptions that are the program's own: what a hint knows, else the last of the chain."""
    for hint in _HINTS:
        told = next((one for one in reversed(errors) if hint.pattern.search(one)), None)
        if told and (hint.in_chain or told == errors[-1]):
            return Finding(cause=hint.cause, did=did, detail=told, resolution=hint.resolution, retryable=hint.retryable)
    return Finding(cause=Cause.PYTHON_EXCEPTION, did=did, detail=errors[-1])


def _silent(did: str, number: int, code: int, lines: Sequence[str]) -> Finding:
    """Read an end without an exception; what the program said last is quoted, for what it is worth."""
    stated, last = tail.stated_error(lines), tail.clip(lines[-1], _LAST_LINE) if lines else ""
    detail = stated or (f"its last line is “{last}”" if last else "")
    if number == signal.SIGBUS:
        return Finding(cause=Cause.SHARED_MEMORY, did=did, detail=detail)
    if number:
        return Finding(cause=Cause.CRASHED, did=did, detail=detail, is_vague=not stated)
    if code in {_COMMAND_NOT_EXECUTABLE, _COMMAND_NOT_FOUND}:
        return Finding(cause=Cause.PROGRAM_MISSING, did=did, detail=detail)
    advice = _NO_GPU if tail.NCCL_WITHOUT_GPU.search(stated) else ""
    return Finding(cause=Cause.EXIT_CODE, did=did, detail=detail, is_vague=not stated and code == 1, resolution=advice)


def _did(number: int, code: int) -> str:
    if not number:
        return f"exited with code {code}{_CODE_WORDS.get(code, '')}"
    name = signal.Signals(number).name if _known_signal(number) else f"signal {number}"
    shown = code if code > 0 else _SIGNAL_BASE + number
    return f"{_SIGNAL_VERBS.get(number, 'died of')} {name} (exit code {shown})"
