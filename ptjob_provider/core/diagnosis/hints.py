"""Text patterns that identify a failure, and the short list of those that no retry fixes.

A failure that is not on that list is retried: a useless retry costs minutes, a missing one may cost a night. The list
therefore holds only errors that recur with the same code, image and arguments at any time and place, and is ignored
where the context mentions a server, a disk or a race (`_PASSING`). `docs/failures.md` documents it for users.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ptjob_provider.core.diagnosis.tail import NCCL_MISUSED, NCCL_WITHOUT_GPU, unmarked
from ptjob_provider.core.diagnosis.verdict import Cause

if TYPE_CHECKING:
    from collections.abc import Sequence

_SAME = "a retry would fail the same way"
_LAST_WORDS = 15
"""Number of last lines that are searched in a log without a traceback."""


@dataclass(frozen=True, kw_only=True)
class Hint:
    """A pattern in an exception's text, and its meaning.

    Attributes:
        pattern: searched in the exception, `Type: first line of its text`.
        cause: for programs.
        in_chain: also applies when another exception followed from it.
        resolution: overrides the cause's advice.
        retryable: overrides the cause's default.
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


_CODE = _hopeless(
    "Fix the training code",
    _types("SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError"),
    _types("NotImplementedError", "RecursionError", "PicklingError"),
    _types("AttributeError", "TypeError", "IsADirectoryError", "NotADirectoryError"),
    # torch on shapes, …
    r"shapes cannot be multiplied|size mismatch(?:,| for)|must match the size of tensor|is invalid for input of size",
    r"Sizes of tensors must match|expected input\[.*\] to have|stack expects each tensor|[Ss]hape mismatch",
    r"Expected input batch_size|different to the input size|Expected \d(?:D|-dimensional) |[Ii]ncompatible shapes",
    r"could not be broadcast|could not broadcast|expanded size of the tensor|more than 1 value per channel",
    r"index out of range in self|Target \S+ is out of bounds|Dimension out of range|device-side assert triggered",
    r"greater than actual input size|view size is not compatible|inhomogeneous shape",
    # … on types and devices, …
    r"Expected all tensors to be on the same device|Expected object of|expected (?:scalar type|m1 and m2)",
    r"type .* should be the same|must have the same dtype|not implemented for '\w+'|Found dtype .* but expected",
    r"expected (?:it|them) to be on (?:GPU|CPU)|CUDA error: invalid configuration argument",
    # … on the graph, and on processes.
    r"does not require grad|modified by an inplace operation|backward through the graph a second time",
    r"leaf Variable that requires grad|Expected to have finished reduction|Expected to mark a variable ready only once",
    r"unscale FP16 gradients|Cannot re-initialize CUDA in forked|start a new process before",
    r"process group (?:has not been|is not) initialized",
)
_IMAGE = _hopeless(
    "Correct the image or what it has installed",
    _types("ImportError", "ModuleNotFoundError", "PackageNotFoundError", "DistributionNotFound", r"\w*VersionConflict"),
    r"Failed to import \S+ because of|cannot open shared object file|undefined symbol|version .(?:GLIBC|CXXABI)",
    r"binary incompatibility|operator \S+ does not exist|compiled with different CUDA|Torch not compiled with CUDA",
    r"does not recognize this architecture|Weights only load failed|mismatches the version",
    r"is not currently imported|no longer supported|Ninja is required|CUDA_HOME environment variable is not set",
    r"Numpy is not available",
)
_GPU = _hopeless(
    "Have the job's GPUs and the image's PyTorch fit each other",
    r"no kernel image is available|invalid device (?:ordinal|function)|unsupported toolchain",
    r"CUDA driver version is insufficient|driver on your system is too old|Invalid device id|device < num_gpus",
    r"doesn't support bf16|only supports .* GPUs",
)
_SETTINGS = _hopeless(
    "Correct the training's settings",
    _types(r"\w*[Cc]onfig\w*(?:Error|Exception)", r"\w*ValidationError", "UsageError", "BadParameter"),
    r"^(?:omegaconf|hydra|yaml|configparser|tomllib|argparse|jsonargparse)\.(?!\S*Instantiation)[\w.]+(?::|$)",
    r"api_key not configured|^KeyError: '[A-Z][A-Z0-9_]{2,}'|environment variable \S+ expected",
    r"(?:should|must) be one of|not found\. Available|Target modules .* not found",
    r"(?:Unknown|Unrecognized|Unsupported) (?:model|configuration|split|optimizer|dataset|architecture)\b",
    r"^ValueError: .*(?i:deepspeed).config|Check batch related parameters|not used by the (?:model|HfArgumentParser)",
    r"^ValueError: `?--\w|^ValueError: .*[Pp]lease (?:specify|pass|set|provide|choose|pick) ",
    r"^FileNotFoundError: .*: '(?!/)[^']+\.(?:ya?ml|cfg|ini|toml|py|sh)'$",
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
    r"40[134] Client Error.*//(?:huggingface\.co|hf\.co)/|doesn't exist on the Hub|NoSuchBucket|InvalidAccessKeyId",
)
_NO_GPU = Hint(
    pattern=NCCL_WITHOUT_GPU,
    in_chain=True,
    resolution="Ask for GPUs, or say that there are none with backend_without_gpu='gloo' "
    f"(--backend-without-gpu gloo), which turns nccl into gloo; {_SAME}",
)
_KILLED_LOADER = Hint(  # mostly out of memory; then the kubelet reports OOMKilled for the whole container
    pattern=re.compile(r"DataLoader worker \(pid \d+\) is killed by signal: Killed"),
    in_chain=True,
    resolution="Raise the memory limit or use fewer data loader workers if it happens again; a retry may help",
    retryable=True,
)
_ARGUMENTS = _hopeless(
    "Correct the program's arguments",
    r": error: (?:unrecognized arguments|the following arguments are required|argument \S+.*: |ambiguous option)",
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
        r"CUDA out of memory|(?:CUDA|cuda runtime) error(?: \(2\) )?: out of memory|OutOfMemoryError"
        r"|CUBLAS_STATUS_ALLOC_FAILED|HIP out of memory|OOM when allocating tensor"
    ),
    cause=Cause.GPU_OUT_OF_MEMORY,
    in_chain=True,
)
_SHARED_MEMORY = Hint(
    pattern=re.compile(r"killed by signal: Bus error|raise your shared memory limit|/dev/shm|file </torch_\d+_"),
    cause=Cause.SHARED_MEMORY,
    in_chain=True,
)
_PROGRAM_MISSING = Hint(
    pattern=re.compile(r"^\S*python[\d.]*: (?:can't open file|No module named|can't find '__main__')"),
    cause=Cause.PROGRAM_MISSING,
)
_SURE = (_NO_GPU, _SHARED_MEMORY, _KILLED_LOADER)
"""So specific that a doubtful context does not count."""
_HOPELESS = (
    _OUT_OF_MEMORY,
    _GPU_OUT_OF_MEMORY,
    _PROGRAM_MISSING,
    _ARGUMENTS,
    _CHECKPOINT,
    _GPU,
    _HUB,
    _SETTINGS,
    _IMAGE,
    _CODE,
    _hopeless("Have each process use a GPU of its own", NCCL_MISUSED.pattern),
)
_SERVER = Hint(
    pattern=re.compile(r"^[\w.]*(?:Connection\w*Error|Connect\w*Timeout|ReadTimeout|TimeoutError|URLError|gaierror)\b"),
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
    r"\w*(?:Connection|Timeout|ProtocolError|IncompleteRead|ChunkedEncoding|Disconnected|BrokenPipe|LocalEntryNotFound)"
    r"|SSLError|TransportError|OperationalError|ServiceUnavailable|TooManyRequests|gaierror"
    r"|timed out|[Cc]onnect(?:ion)? (?:reset|refused|aborted|closed|broken|error|to )|couldn't connect|name resolution"
    r"|[Tt]emporar(?:y failure|ily)|[Tt]oo [Mm]any [Rr]equests|[Rr]ate limit|SlowDown|Server Error|[Tt]ry again"
    r"|Service Unavailable|Bad Gateway|Max retries exceeded|[Cc]ode:? 5\d\d\b"
    # disks and shared file systems
    r"|Input/output error|Stale file handle|Transport endpoint|No space left|is locked"
    # caches that several processes fill at once, a node without its driver
    r"|torch_extensions|transformers_modules|datasets_modules|libcuda\.so|libnvidia-"
    # missing or unexpected objects of unknown origin. A data loader raises its worker's exception anew by type and text
    # alone; for the types of many HTTP clients that is a TypeError (pytorch #30147)
    r"|NoneType|'\w*(?:Response|Error|Exception)' object|__init__\(\) missing"
)
_NO_HINT = Hint(pattern=re.compile(r"$^"), retryable=None)
_LAUNCHER = re.compile(r"^(?:[\w.]+\.)?CalledProcessError: Command '\['[^']*python[\d.]*', (?!'-m', 'pip')")
_SIZE = r"([\d.]+) ([KMG])iB"
_TRIED = re.compile(rf"Tried to allocate {_SIZE}")
_TOTAL = re.compile(rf"total capac\w+ of {_SIZE}|{_SIZE} total capacity")
_HELD = re.compile(rf"this process has {_SIZE}|{_SIZE} already allocated|allocated memory {_SIZE} is allocated")
_KIB = {"K": 1, "M": 1024, "G": 1024**2}


def hint_of(errors: Sequence[str], *, before: Sequence[str], rest: Sequence[str]) -> tuple[Hint, str]:
    """Return the hint that matches one of the exceptions, and that exception; else the last exception.

    Args:
        errors: the program's own, at least one, in order.
        before: earlier ones that only refer to another replica.
        rest: further lines of the last one's text.
    """
    own = [error for error in errors if not _LAUNCHER.search(error)] or list(errors)
    is_in_doubt = any(_PASSING.search(error) for error in (*before, *own, *rest))
    for hint in (*_SURE, *(() if is_in_doubt else _HOPELESS), _SERVER, _FAULTY_GPU):
        told = next((one for one in reversed(own) if hint.pattern.search(one)), None)
        if told and (hint.in_chain or told == own[-1]):
            return _unless_held(hint, told), told
    hint, _ = hint_in(rest) or (_NO_HINT, "")
    return hint, errors[-1]


def hint_in(lines: Sequence[str]) -> tuple[Hint, str] | None:
    """Return the hint and the line by which no retry fixes an end without a traceback, if any."""
    last = unmarked(lines[-_LAST_WORDS:])
    if any(_PASSING.search(line) for line in last):
        return None
    for hint in (*_SURE, *_HOPELESS, _KILLED_FOR_MEMORY):
        line = next((line for line in reversed(last) if hint.pattern.search(line)), "")
        if line:
            return _unless_held(hint, line), line
    return None


def memory_killer(lines: Sequence[str]) -> str:
    """Return a launcher's line that the kernel killed the process for its memory; "" for none."""
    return next((line for line in reversed(lines[-_LAST_WORDS:]) if _KILLED_FOR_MEMORY.pattern.search(line)), "")


def _unless_held(hint: Hint, told: str) -> Hint:
    """Make a GPU memory error retryable if the process requested and held less than half of that memory."""
    if hint is not _GPU_OUT_OF_MEMORY:
        return hint
    tried, total, held = (_kib(pattern, told) for pattern in (_TRIED, _TOTAL, _HELD))
    if total is None or held is None or (tried or 0) + held > total / 2:
        return hint
    advice = "Another process holds most of that GPU; a retry may meet another one"
    return replace(hint, resolution=advice, retryable=True)


def _kib(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    number, unit = [group for group in found.groups() if group] if found else ("", "")
    return float(number) * _KIB[unit] if number else None
