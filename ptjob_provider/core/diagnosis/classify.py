"""Classify one container's end by itself, before it is compared with the other replicas' ends.

Only failures that match a hint in `_HOPELESS` are not retried: a useless retry costs minutes, a missing retry may cost
a night. These hints are therefore errors that recur with the same code, image and arguments at any time and place. They
are ignored where the log mentions a server, a disk or a race (`_PASSING`). `docs/explanation/failures.md` lists them.

A pattern that is searched has no repeat without a limit behind a beginning that may come again and again: the search
would take quadratic time on a long line, in the event loop of all jobs.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ptjob_provider.core.containment import contained
from ptjob_provider.core.diagnosis import last_lines
from ptjob_provider.core.diagnosis.causes import CAUSES, Cause, passes_by_itself
from ptjob_provider.core.diagnosis.last_lines import NCCL_MISUSED, NCCL_WITHOUT_GPU, without_ranks
from ptjob_provider.core.history import is_program_missing
from ptjob_provider.core.in_pod import sync_code, unpack_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.history import Termination

_SAME = "a retry would fail the same way"
_SEARCHED_LINES = 15
"""Number of last lines of a log without a traceback in which hints are searched."""


@dataclass(frozen=True, kw_only=True)
class Hint:
    """Pattern in an exception's text, and the cause that it shows.

    Attributes:
        pattern: searched in the exception, `Type: first line of its text`.
        cause: the code of the cause.
        in_chain: also applies to an exception from which another exception followed.
        resolution: replaces the cause's advice; "" does not.
        retryable: replaces the cause's default; None does not.
    """

    pattern: re.Pattern[str]
    cause: Cause = Cause.PYTHON_EXCEPTION
    in_chain: bool = False
    resolution: str = ""
    retryable: bool | None = False


def _types(*names: str) -> str:
    return rf"^(?:[\w.]+\.)?(?:{'|'.join(names)})(?::|$)"


def _hopeless(advice: str, *patterns: str) -> Hint:
    return Hint(pattern=re.compile("|".join(patterns)), resolution=f"{advice}; {_SAME}")


def _passing(advice: str, pattern: str) -> Hint:
    return Hint(pattern=re.compile(pattern), in_chain=True, resolution=f"{advice}; a retry may help", retryable=True)


_CODE = _hopeless(
    "Fix the training code",
    _types("SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError"),
    _types("NotImplementedError", "RecursionError", "PicklingError"),
    _types("AttributeError", "TypeError", "IsADirectoryError", "NotADirectoryError"),
    # PyTorch's errors about shapes,
    r"shapes cannot be multiplied|size mismatch(?:,| for)|must match the size of tensor|is invalid for input of size",
    r"Sizes of tensors must match|expected input\[.{0,300}\] to have|stack expects each tensor|[Ss]hape mismatch",
    r"Expected input batch_size|different to the input size|Expected \d(?:D|-dimensional) |[Ii]ncompatible shapes",
    r"could not be broadcast|could not broadcast|expanded size of the tensor|more than 1 value per channel",
    r"index out of range in self|Target \S+ is out of bounds|Dimension out of range|device-side assert triggered",
    r"greater than actual input size|view size is not compatible|inhomogeneous shape",
    # about types and devices,
    r"Expected all tensors to be on the same device|Expected object of|expected (?:scalar type|m1 and m2)",
    r"type .{0,300} should be the same|must have the same dtype|not implemented for '\w+'",
    r"Found dtype .{0,300} but expected|expected (?:it|them) to be on (?:GPU|CPU)",
    r"CUDA error: invalid configuration argument",
    # about the graph and processes
    r"does not require grad|modified by an inplace operation|backward through the graph a second time",
    r"leaf Variable that requires grad|Expected to have finished reduction|Expected to mark a variable ready only once",
    r"unscale FP16 gradients|Cannot re-initialize CUDA in forked|start a new process before",
    r"process group (?:has not been|is not) initialized",
)
_IMAGE = _hopeless(
    "Correct the image or what it has installed",
    _types("ImportError", "PackageNotFoundError", "DistributionNotFound", r"\w*VersionConflict"),
    r"Failed to import \S+ because of|cannot open shared object file|undefined symbol|version .(?:GLIBC|CXXABI)",
    r"binary incompatibility|operator \S+ does not exist|compiled with different CUDA|Torch not compiled with CUDA",
    r"does not recognize this architecture|Weights only load failed|mismatches the version",
    r"is not currently imported|no longer supported|Ninja is required|CUDA_HOME environment variable is not set",
    r"Numpy is not available",
)
_BROUGHT = 'add code="." (--code .; in a pipeline, a folder as an artifact)'
_MODULE = _hopeless(
    f"Correct the image or what it has installed; if the module is one of your own, {_BROUGHT}",
    _types("ModuleNotFoundError"),
)
_RELATIVE_FILE = r"^FileNotFoundError: .*: '(?!/|\w+://)[^']"
_NO_FILE = f"Correct the path; if the file lies beside the program, {_BROUGHT}"
_SETTINGS_FILE = _hopeless(_NO_FILE, rf"{_RELATIVE_FILE}+\.(?:ya?ml|cfg|ini|toml|py|sh)'$")
_DATA_FILE = Hint(pattern=re.compile(_RELATIVE_FILE), resolution=f"{_NO_FILE}; a retry may help", retryable=True)
_GPU = _hopeless(
    "Have the job's GPUs and the image's PyTorch fit each other",
    r"no kernel image is available|invalid device (?:ordinal|function)|unsupported toolchain",
    r"CUDA driver version is insufficient|driver on your system is too old|Invalid device id|device < num_gpus",
    r"doesn't support bf16|only supports .{0,300} GPUs",
)
_SETTINGS = _hopeless(
    "Correct the training's settings",
    _types(r"\w*[Cc]onfig\w*(?:Error|Exception)", r"\w*ValidationError", "UsageError", "BadParameter"),
    r"^(?:omegaconf|hydra|yaml|configparser|tomllib|argparse|jsonargparse)\.(?!\S*Instantiation)[\w.]+(?::|$)",
    r"api_key not configured|^KeyError: '[A-Z][A-Z0-9_]{2,}'|environment variable \S+ expected",
    r"(?:should|must) be one of|not found\. Available|Target modules .{0,300} not found",
    r"(?:Unknown|Unrecognized|Unsupported) (?:model|configuration|split|optimizer|dataset|architecture)\b",
    r"^ValueError: .*(?i:deepspeed).config|Check batch related parameters|not used by the (?:model|HfArgumentParser)",
    r"^ValueError: `?--\w|^ValueError: .*[Pp]lease (?:specify|pass|set|provide|choose|pick) ",
    r"Could not override '|Unknown command line flag",
)
_CHECKPOINT = _hopeless(
    "Give a checkpoint that fits the model", r"Error\(s\) in loading state_dict|loaded state dict|invalid load key, 'v'"
)
_HUB = _hopeless(
    "Correct the name, or give credentials that may read it",
    _types("RepositoryNotFoundError", "GatedRepoError", "RevisionNotFoundError", "EntryNotFoundError"),
    _types("DatasetNotFoundError", "RemoteEntryNotFoundError", "DisabledRepoError"),
    r"not a valid model identifier|access a gated repo|does not appear to have a file named",
    r"40[134] Client Error.{0,300}//(?:huggingface\.co|hf\.co)/|doesn't exist on the Hub",
    r"NoSuchBucket|InvalidAccessKeyId",
)
_NO_GPU = Hint(
    pattern=NCCL_WITHOUT_GPU,
    in_chain=True,
    resolution="Ask for GPUs, or have the program use the back-end gloo, which needs none, instead of nccl: "
    f"most take it as an argument such as --backend gloo; {_SAME}",
)
_KILLED_LOADER = _passing(  # not OUT_OF_MEMORY: if the memory limit is the reason, the kubelet reports OOMKilled
    "Raise the memory limit or use fewer data loader workers if it happens again",
    r"DataLoader worker \(pid \d+\) is killed by signal: Killed",
)
_ARGUMENTS = _hopeless(
    "Correct the program's arguments",
    r": error: (?:unrecognized arguments|the following arguments are required|argument \S.{0,300}: |ambiguous option)",
    r"^Error: (?:No such (?:option|command)|Missing (?:argument|option|parameter)|Invalid value for|Got unexpected)",
    r"Could not consume arg",
)
_OUT_OF_MEMORY = Hint(
    pattern=re.compile(
        r"^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b|std::bad_alloc"
        r"|DefaultCPUAllocator: (?:not enough|can't allocate) memory|^ray\.exceptions\.OutOfMemoryError"
    ),
    cause=Cause.OUT_OF_MEMORY,
    in_chain=True,
)
_KILLED_FOR_MEMORY = Hint(
    pattern=re.compile(r"oom[-_ ]?kill|OOM Killed|task \d+: Out Of Memory|Out of memory: Kill", re.IGNORECASE),
    cause=Cause.OUT_OF_MEMORY,
)
_GPU_OUT_OF_MEMORY = Hint(
    pattern=re.compile(
        r"CUDA out of memory|(?:CUDA|cuda runtime) error(?: \(2\) )?: out of memory|Cuda failure(?: 2)? 'out of memory'"
        r"|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|HIP out of memory|OOM when allocating tensor"
    ),
    cause=Cause.GPU_OUT_OF_MEMORY,
    in_chain=True,
)
_SHARED_MEMORY = Hint(
    pattern=re.compile(r"killed by signal: Bus error|raise your shared memory limit|/dev/shm|file </torch_\d+_"),
    cause=Cause.SHARED_MEMORY,
    in_chain=True,
)
_DISK_FULL = Hint(
    pattern=re.compile(  # torch.save reports a failed write by its position
        r"No space left on device|Disk quota exceeded|unexpected pos \d+ vs"
        r"|PytorchStreamWriter .{0,300}file write failed"
    ),
    cause=Cause.DISK_FULL,
    in_chain=True,
    retryable=None,
)
_OPEN_FILES = _passing(
    "Raise the limit of open files (ulimit -n), or use fewer data loader workers or "
    "torch.multiprocessing.set_sharing_strategy('file_system')",
    r"Too many open files|received 0 items of ancdata",
)
_PORT_TAKEN = _passing(
    "Another process of the pod (of the node, with host_network) has that port: start a pod's processes with torchrun, "
    "which opens it once, or choose another port",
    last_lines.PORT_TAKEN.pattern,
)
_NO_PROGRAM = f"Correct the command or the image; if the program's folder is not in the image, {_BROUGHT}; {_SAME}"
_PROGRAM_MISSING = Hint(
    pattern=re.compile(r"^\S*python[\d.]*: (?:can't open file|No module named|can't find '__main__')"),
    cause=Cause.PROGRAM_MISSING,
    resolution=_NO_PROGRAM,
)
_RELATIVE = re.compile(r'exec: "[^/"]+/')
"""Runtime's error about a program whose path is relative to the working directory."""
_SURE = (_NO_GPU, _SHARED_MEMORY, _KILLED_LOADER, _DISK_FULL, _OPEN_FILES, _PORT_TAKEN)
"""Hints so specific that they apply whatever else the log mentions."""
_HOPELESS = (
    _OUT_OF_MEMORY,
    _GPU_OUT_OF_MEMORY,
    _PROGRAM_MISSING,
    _ARGUMENTS,
    _CHECKPOINT,
    _GPU,
    _HUB,
    _SETTINGS,
    _SETTINGS_FILE,
    _MODULE,
    _IMAGE,
    _CODE,
    _hopeless("Build the image for the architecture of the nodes, or begin the script with #!", r": exec format error"),
    _hopeless("Have each process use a GPU of its own", NCCL_MISUSED.pattern),
)
_SERVER = Hint(
    pattern=re.compile(
        r"^[\w.]*(?:Connection\w{0,40}Error|Connect\w{0,40}Timeout|ReadTimeout|TimeoutError|URLError|gaierror)\b"
    ),
    resolution="Look at the server that it could not reach; a retry may help",
    retryable=True,
)
_FAULTY_GPU = Hint(
    pattern=re.compile(r"uncorrectable ECC error|GPU is lost|fallen off the bus|NVML: Unknown Error"),
    resolution="The node's GPU is faulty; a retry may meet another node",
    retryable=True,
)
_PASSING = re.compile(
    # servers and networks
    r"Connection|Timeout|ProtocolError|IncompleteRead|ChunkedEncoding|Disconnected|BrokenPipe|LocalEntryNotFound"
    r"|SSLError|TransportError|OperationalError|ServiceUnavailable|TooManyRequests|gaierror"
    r"|timed out|[Cc]onnect(?:ion)? (?:reset|refused|aborted|closed|broken|error|to )|couldn't connect|name resolution"
    r"|[Tt]emporar(?:y failure|ily)|[Tt]oo [Mm]any [Rr]equests|[Rr]ate limit|SlowDown|Server Error|[Tt]ry again"
    r"|Service Unavailable|Bad Gateway|Max retries exceeded|[Cc]ode:? 5\d\d\b"
    # disks and shared file systems
    r"|Input/output error|Stale file handle|Transport endpoint|No space left|is locked"
    # caches that several processes fill at once, and nodes without a driver
    r"|torch_extensions|transformers_modules|datasets_modules|libcuda\.so|libnvidia-"
    # missing or unexpected objects of unknown origin. A data loader rebuilds the exception of its worker from type and
    # text alone, which fails with a TypeError for the exceptions of many HTTP clients (pytorch #30147)
    r"|NoneType|'\w*(?:Response|Error|Exception)' object|__init__\(\) missing"
)
_NO_HINT = Hint(pattern=re.compile(r"$^"), retryable=None)
_LAUNCHER = re.compile(r"^(?:[\w.]+\.)?CalledProcessError: Command '\['[^']*python[\d.]*', (?!'-m', 'pip')")
_SIZE = r"(\d{1,9}(?:\.\d{1,9})?) ([KMG])iB"
_TRIED = re.compile(rf"Tried to allocate {_SIZE}")
_TOTAL = re.compile(rf"total capac\w+ of {_SIZE}|{_SIZE} total capacity")
_HELD = re.compile(rf"this process has {_SIZE}|{_SIZE} already allocated|allocated memory {_SIZE} is allocated")
_KIB = {"K": 1, "M": 1024, "G": 1024**2}


def hint_of(errors: Sequence[str], *, before: Sequence[str], rest: Sequence[str]) -> tuple[Hint, str]:
    """Return the hint that matches one of a program's exceptions, and that exception.

    If none matches, return the hint for `rest`, or `_NO_HINT`, and the last exception.

    Args:
        errors: the program's own exceptions, at least one, in order.
        before: earlier exceptions, which only report a lost connection to another replica.
        rest: further lines of the last exception's text.
    """
    own = [error for error in errors if not _LAUNCHER.search(error)] or list(errors)
    is_in_doubt = any(_PASSING.search(error) for error in (*before, *own, *rest))
    for hint in (*_SURE, *(() if is_in_doubt else _HOPELESS), _SERVER, _FAULTY_GPU, _DATA_FILE):
        match = next((error for error in reversed(own) if hint.pattern.search(error)), None)
        if match and (hint.in_chain or match == own[-1]):
            return _unless_held(hint, match), match
    hint, _ = hint_in(rest) or (_NO_HINT, "")
    return hint, errors[-1]


def hint_in(lines: Sequence[str]) -> tuple[Hint, str] | None:
    """Return the hint that matches one of the last lines, and that line; None for no hint.

    Where `_PASSING` matches, only the hints in `_SURE` apply.
    """
    last = without_ranks(lines[-_SEARCHED_LINES:])
    is_in_doubt = any(_PASSING.search(line) for line in last)
    for hint in (*_SURE, *(() if is_in_doubt else (*_HOPELESS, _KILLED_FOR_MEMORY, _FAULTY_GPU))):
        line = next((line for line in reversed(last) if hint.pattern.search(line)), "")
        if line:
            return _unless_held(hint, line), line
    return None


def memory_killer(lines: Sequence[str]) -> str:
    """Return the line of a launcher which says that the kernel killed the process to free memory; "" for none."""
    return next((line for line in reversed(lines[-_SEARCHED_LINES:]) if _KILLED_FOR_MEMORY.pattern.search(line)), "")


def _unless_held(hint: Hint, text: str) -> Hint:
    """Return the hint; for a GPU memory error, a retryable one if the process itself used up to half of the memory."""
    if hint is not _GPU_OUT_OF_MEMORY:
        return hint
    tried, total, held = (_kib(pattern, text) for pattern in (_TRIED, _TOTAL, _HELD))
    if total is None or held is None or (tried or 0) + held > total / 2:
        return hint
    advice = "Another process holds most of that GPU; a retry may meet another one"
    return replace(hint, resolution=advice, retryable=True)


def _kib(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    number, unit = [group for group in match.groups() if group] if match else ("", "")
    return float(number) * _KIB[unit] if number else None


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
_NOT_STARTED = (
    "See whether the other replicas came as far. If all did, the job counts more processes than its pods start: leave "
    "nproc_per_node (--nproc-per-node) out, or start them with torchrun; a retry may help"
)
_LAST_LINE = 160


@dataclass(frozen=True, kw_only=True)
class Classification:
    """Classification of one container's end.

    Attributes:
        cause: the code of the cause.
        did: what the replica did; completes "worker-0 …".
        exception: the type of the exception that ended the program; "" for none.
        process: the rank of the process that failed inside the pod; "" for the pod's main process.
        detail: what the program, its runtime or its node reports.
        is_vague: the end may be a mere consequence of another replica's end.
        resolution: replaces the cause's advice; "" does not.
        retryable: replaces the cause's default; None does not.
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
        """Return the advice and whether a retry may help: this classification's own, else the cause's defaults."""
        info = CAUSES[self.cause]
        return self.resolution or info.advice, info.retryable if self.retryable is None else self.retryable

    @property
    def passes(self) -> bool:
        """Return whether the cause passes by itself; see `Diagnosis.passes`."""
        return bool(self.retryable) or passes_by_itself(self.cause, retryable=self.advice[1])

    @property
    def is_by_platform(self) -> bool:
        """Return whether the platform ended it; see `Diagnosis.by_platform`."""
        return self.advice[1] and CAUSES[self.cause].by_platform

    def text(self, more: str = "") -> str:
        """Return `did`, `more` and the detail as text."""
        return f"{self.did}{more}" + (f": {self.detail}" if self.detail else "")

    @property
    def is_consequence(self) -> bool:
        """Return whether an end like this is usually the consequence of another replica's end."""
        return self.cause in {Cause.CONNECTION_LOST, Cause.TERMINATED}


@contained(lambda why, *_: Classification(cause=Cause.UNKNOWN, did="ended", detail=f"its end cannot be read: {why}"))
def classify(end: Termination, lines: Sequence[str]) -> Classification:
    """Classify one container's end; `lines` are the last lines of its log."""
    known = disrupted(end.disruption) if end.disruption else _by_kubelets_reason(end)
    known = known or _unfetched(end, lines)
    if known is not None:
        return known
    root = last_lines.torchrun_root(lines)
    if root:
        return _process(root, lines)
    return _exited(signal_of(end), end.exit_code or 0, lines, last_lines.python_errors(lines))


def _by_kubelets_reason(end: Termination) -> Classification | None:
    """Classify an end by the kubelet's reason, if the reason is more specific than an exit code."""
    if end.reason == "OOMKilled":
        return Classification(
            cause=Cause.OUT_OF_MEMORY, did=f"ran out of memory (OOMKilled, exit code {end.exit_code})"
        )
    if end.reason in {"StartError", "ContainerCannotRun"}:
        return _unstarted(end)
    if end.reason == "ContainerStatusUnknown":
        return Classification(cause=Cause.NODE_LOST, did="was lost by its node (ContainerStatusUnknown)")
    if end.exit_code is None:
        return Classification(cause=Cause.UNKNOWN, did="ended in an unknown way")
    return None


def _unfetched(end: Termination, lines: Sequence[str]) -> Classification | None:
    """Classify an end because of code that could not be fetched or unpacked, by the message of the in-pod program."""
    if lines and lines[-1].startswith(unpack_code.FAILED):
        detail = last_lines.clip(lines[-1].removeprefix(unpack_code.FAILED))
        advice = "Look at what could not be written; a retry submits the folder again"
        return Classification(
            cause=Cause.CODE, did="could not unpack its code", detail=detail, resolution=advice, retryable=True
        )
    if end.container != sync_code.CONTAINER or not lines or not lines[-1].startswith(sync_code.FAILED):
        return None
    detail, did = last_lines.clip(lines[-1].removeprefix(sync_code.FAILED)), "could not fetch the code"
    if end.exit_code == sync_code.UNREACHABLE:
        return Classification(cause=Cause.CODE, did=did, detail=detail, resolution=_UNREACHABLE, retryable=True)
    return Classification(cause=Cause.CODE, did=did, detail=detail)


def disrupted(disruption: str) -> Classification:
    """Classify the disruption of a whole pod, given as `Reason: message`."""
    reason, _, message = disruption.partition(": ")
    detail = last_lines.clip(message)
    if reason == "SupervisorLost":
        return Classification(cause=Cause.SUPERVISOR_LOST, did="lost the process that ran it", detail=detail)
    if reason == "DeadlineExceeded":
        return Classification(cause=Cause.DEADLINE, did="was active longer than its pod's deadline", detail=detail)
    if reason in _PREEMPTIONS:
        return Classification(cause=Cause.PREEMPTED, did=f"was preempted ({reason})", detail=detail)
    if reason in _NODE_REASONS:
        return Classification(cause=Cause.NODE_LOST, did=f"lost its node ({reason})", detail=detail)
    if _OWN_LIMIT.search(message):
        advice = "Raise that limit or write less; a retry would fail the same way"
        return Classification(cause=Cause.EVICTED, did="was evicted", detail=detail, resolution=advice, retryable=False)
    return Classification(cause=Cause.EVICTED, did=_EVICTIONS.get(reason, f"was evicted ({reason})"), detail=detail)


def _unstarted(end: Termination) -> Classification:
    missing = is_program_missing(end.reason, end.message)
    cause = Cause.PROGRAM_MISSING if missing else Cause.CANNOT_START
    detail = last_lines.runtime_error(end.message)
    advice = _NO_PROGRAM if missing and _RELATIVE.search(detail) else ""
    return Classification(cause=cause, did=f"could not be started ({end.reason})", detail=detail, resolution=advice)


def _process(root: last_lines.RootCause, lines: Sequence[str]) -> Classification:
    """Classify the end of the process that torchrun names as the first to fail, instead of torchrun's own exit."""
    code = root.exit_code or 0
    own = last_lines.lines_of_rank(lines, root.rank)
    errors = (root.error,) if root.error else last_lines.python_errors(own)
    result = _exited(-code if code < 0 else 0, code, own, errors)
    if result.is_vague:  # several processes write into one log: the last line may be of another process
        result = replace(result, detail="", resolution=_SEE_LOG)
    return replace(result, process=root.rank)


def signal_of(end: Termination) -> int:
    """Return the number of the signal that ended the container; 0 for none."""
    return end.signal or _known_signal((end.exit_code or 0) - _SIGNAL_BASE)


def _known_signal(number: int) -> int:
    return number if number in {each.value for each in signal.Signals if each < signal.SIGRTMIN} else 0


def _exited(number: int, code: int, lines: Sequence[str], errors: Sequence[str]) -> Classification:
    """Classify an end by signal, exception or exit code, in order of precedence.

    SIGKILL has precedence over everything printed before. A program's own exception has precedence over any other
    signal: after a Python exception, torch's destructors may abort the process (exit code 134).
    """
    did = _did(number, code)
    if number == signal.SIGKILL:
        killer = last_lines.clip(memory_killer(lines), _LAST_LINE)
        return Classification(cause=Cause.OUT_OF_MEMORY if killer else Cause.KILLED, did=did, detail=killer)
    own = [error for error in errors if not last_lines.is_connection_loss(error)]
    if own:
        return _raised(did, own, errors, lines)
    if number in STOPS:
        return Classification(cause=Cause.TERMINATED, did=did)
    lost = errors[-1] if errors else last_lines.logged_connection_loss(lines)
    if lost:
        exception = last_lines.type_of(lost) if errors else ""
        resolution = _NOT_STARTED if last_lines.TOO_FEW.search(lost) else ""
        return Classification(
            cause=Cause.CONNECTION_LOST, did=did, detail=lost, exception=exception, resolution=resolution
        )
    return _silent(did, number, code, lines)


def _raised(did: str, own: Sequence[str], errors: Sequence[str], lines: Sequence[str]) -> Classification:
    """Classify an end by the program's own exceptions: by a matching hint, else by the last exception."""
    rest = last_lines.rest_of(own[-1], lines)
    hint, error = hint_of(own, before=errors[: errors.index(own[0])], rest=rest)
    place = last_lines.raised_in(lines)
    return Classification(
        cause=hint.cause,
        did=did,
        detail=f"{place}: {error}" if place else error,
        exception=last_lines.type_of(error),
        resolution=hint.resolution,
        retryable=hint.retryable,
    )


def _silent(did: str, number: int, code: int, lines: Sequence[str]) -> Classification:
    """Classify an end without an exception, and quote the program's last line."""
    stated, last = last_lines.stated_error(lines), last_lines.clip(lines[-1], _LAST_LINE) if lines else ""
    cause = _cause_of(number, code)
    result = Classification(
        cause=cause,
        did=did,
        detail=stated or (f"its last line is “{last}”" if last else ""),
        is_vague=not stated and (cause is Cause.CRASHED or (cause is Cause.EXIT_CODE and code == 1)),
    )
    if code == _USAGE and last_lines.prints_usage(lines):
        result = replace(result, resolution=_CORRECT_ARGS, retryable=False)
    known = hint_in([*lines, stated] if stated else lines)  # C++ prints its frames after the error
    if known is None:
        return result
    hint, line = known
    return replace(
        result,
        cause=cause if hint.cause is Cause.PYTHON_EXCEPTION else hint.cause,
        detail=stated or last_lines.clip(line),
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
