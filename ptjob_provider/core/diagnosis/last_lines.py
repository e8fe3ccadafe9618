"""Parse the last lines of a training program's log: Python exceptions, torchrun's report, lost connections.

The input is usually 2 KiB or 80 lines (the kubelet's FallbackToLogsOnError), so a traceback may lack its beginning.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core.in_pod import run_function
from ptjob_provider.core.versions import read_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MAX_TEXT = 300
_MAX_REST = 10
_RANK_PREFIX = re.compile(r"^(?:\[[a-z_]+(\d+)\]:\s?)+")  # `[rank1]: ` of torch >= 2.3, `[default1]:` of torchrun --tee
_RAISED_IN = re.compile(rf"^{run_function.RAISED_IN}(\w+ \(.+, line \d+\))$")
_FRAME = re.compile(r'^\s+File ".*", line \d+')
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::\s?(?P<text>.*))?$")
_NAMED_ERROR = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)(?::\s.*)?$")
_WRAPPERS = ("ChildFailedError", "SignalException", "SIGTERMException", "KeyboardInterrupt", "SystemExit")
_AGENT = re.compile(r"multiprocessing/api\.py:\d+\]|torch[./]distributed[./]elastic")
_RUNTIME = re.compile(r"^.*(?:runc create failed: |start container process: |during container init: )")
_PULL = re.compile(
    r'^(?:rpc error: code = \w+ desc = )?failed to pull and unpack image "(?P<image>[^"]*)": '
    r'(?:failed to \w+ \w+ "[^"]*": )?(?:(?P=image): )?'
)
_MOUNT = re.compile(r" Mounting command: .{0,1024} Output: (?:mount: /\S+: )?")
_USAGE = re.compile(r"^[Uu]sage: ")
_USAGE_ERROR = re.compile(r"^\S.*: error: .+")
_WHAT = re.compile(r"^\s*what\(\):\s+(.+)")
_ROOT_CAUSE = re.compile(r"^\s*Root Cause \(first observed failure\):")
_FIELD = re.compile(r"^\s{2}(rank|exitcode|traceback)\s*: (.*)$")
_NUMBER = re.compile(r"-?\d+")
_CONNECTION = re.compile(
    r"gloo/transport|^RuntimeError: .*Connection (?:closed|reset) by|Gloo connectFullMesh|^RuntimeError: .*Broken pipe"
    r"|nccl(?:Remote|System|Internal)Error|NCCL (?:error|timeout|communicator was aborted)|NCCL watchdog"
    r"|Watchdog caught collective operation timeout|ProcessGroupNCCL|Application timeout caused pair closure"
    r"|TCPStore|DistNetworkError|DistStoreError|DistBackendError|Rendezvous(?:Connection|Closed|Timeout)Error"
    r"|Socket Timeout|client socket has (?:failed|timed out)|recvValue failed|Heartbeat monitor timed out"
)
NCCL_WITHOUT_GPU = re.compile(
    r"nccl\w{0,40} (?:needs a|requires at least one) (?:GPU|CUDA device)|ProcessGroupNCCL is only supported with GPUs"
    r"|Distributed package doesn't have NCCL|nccl.{0,300}no CUDA-capable device",
    re.IGNORECASE,
)
"""Errors that NCCL has found no GPU, or that PyTorch is a build without NCCL (for CPUs)."""
NCCL_MISUSED = re.compile(
    r"ncclInvalid(?:Usage|Argument)|, invalid (?:usage|argument)(?: \(run with .{0,300}\))?, NCCL"
    r"|Duplicate GPU detected"
)
"""Errors of NCCL about invalid use by the program, such as two ranks on one GPU."""
_CUDA_FAILED = re.compile(r"CUDA error: |unhandled cuda error|c10_cuda_check_implementation")
"""Signs that a CUDA call of this process has failed, which NCCL's watchdog reports like a lost connection."""
PORT_TAKEN = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
"""Errors that the port for the other replicas is taken."""
TOO_FEW = re.compile(r"\d/\d+ clients joined")
"""PyTorch's error that fewer processes met than the job counts."""
_DISTRIBUTED = re.compile(r"torch[./]distributed|c10d|gloo|nccl|TCPStore|ProcessGroup|elastic", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class RootCause:
    """Torchrun's report of the process that failed first.

    Attributes:
        rank: the rank of the process among all processes of the job; "" if unreadable.
        exit_code: the exit code, negative for a signal; None if unreadable.
        error: the exception; "" unless the program's entry point is decorated with torch's `record`.
    """

    rank: str
    exit_code: int | None
    error: str


def lines_of(message: str) -> tuple[str, ...]:
    """Split the end of a log into lines; of a line that overwrites itself (a progress bar), keep the last text."""
    return tuple(line.rstrip("\r").rpartition("\r")[2] for line in message.rstrip("\n").split("\n") if message.strip())


def python_errors(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the exceptions at the end of tracebacks, in order, each as `Type: first line of its text`.

    A chain of exceptions gives several, of which the last ended the program. Torchrun's exceptions about its child
    processes are left out, and so are exceptions that only report a stop signal.
    """
    plain = without_ranks(lines)
    errors = [*_from_error_file(plain), *_after_frames(plain)] or list(_named(plain))
    return tuple(clip(error) for error in errors if not type_of(error).endswith(_WRAPPERS))


def rest_of(error: str, lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of an exception's text after the first line, up to an empty line or the end of the text."""
    plain = without_ranks(lines)
    start = next((number for number in reversed(range(len(plain))) if clip(plain[number]) == error), len(plain))
    rest = itertools.takewhile(lambda line: line and not _RAISED_IN.match(line), plain[start + 1 :])
    return tuple(itertools.islice(rest, _MAX_REST))


def raised_in(lines: Sequence[str]) -> str:
    """Return the function that ran as a job, its file and the line where the exception left it; "" for a program."""
    return next((match[1] for line in reversed(without_ranks(lines)) if (match := _RAISED_IN.match(line))), "")


def torchrun_root(lines: Sequence[str]) -> RootCause | None:
    """Return torchrun's report of the process that failed first; None if the lines contain none."""
    start = next((number for number, line in enumerate(lines) if _ROOT_CAUSE.match(line)), None)
    if start is None:
        return None
    block = lines[start:]
    matches = (_FIELD.match(line) for line in block)
    fields = {field[1]: field[2] for field in matches if field}
    errors = python_errors([line.removeprefix("  ") for line in block])
    return RootCause(
        rank=fields.get("rank", "").partition(" ")[0],
        exit_code=_number(fields.get("exitcode", "")),
        error=errors[-1] if errors else "",
    )


def lines_of_rank(lines: Sequence[str], rank: str) -> tuple[str, ...]:
    """Return the lines before torchrun's closing lines that have this rank's prefix (`[rank3]: …`) or no prefix."""
    return tuple(line for line in _before_agent(lines) if (mark := _RANK_PREFIX.match(line)) is None or mark[1] == rank)


def without_agent_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines without torchrun's closing lines, if there is an exception before them that they would hide."""
    own = _before_agent(lines)
    return own if python_errors(own) else tuple(lines)


def stated_error(lines: Sequence[str]) -> str:
    """Return an error printed without a traceback: argparse's `prog: error: …`, C++'s `what():`; "" for none."""
    for line in reversed(lines):
        what = _WHAT.match(line)
        if what:
            return clip(what[1])
        if _USAGE_ERROR.match(line):
            return clip(line)
    return ""


def without_ranks(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines without the rank prefix of their process (`[rank3]: …`)."""
    return tuple(_RANK_PREFIX.sub("", line) for line in lines)


def prints_usage(lines: Sequence[str]) -> bool:
    """Return whether a program has printed its usage, as argparse and click do for invalid arguments."""
    return any(_USAGE.match(line) or _USAGE_ERROR.match(line) for line in lines)


def type_of(error: str) -> str:
    """Return the type of an exception as Python prints it; "" if the text does not begin with a type."""
    name = error.partition(":")[0]
    return name if _ERROR.match(name) else ""


def is_connection_loss(error: str) -> bool:
    """Return whether an exception only reports a lost connection to another replica."""
    own = (NCCL_WITHOUT_GPU, NCCL_MISUSED, PORT_TAKEN, _CUDA_FAILED)
    return bool(_CONNECTION.search(error)) and not any(each.search(error) for each in own)


def logged_connection_loss(lines: Sequence[str]) -> str:
    """Return the log line about a lost connection, "" for none; NCCL's watchdog logs one and aborts the process.

    Where a CUDA call has failed, the frames of the watchdog are of that failure.
    """
    if any(_CUDA_FAILED.search(line) for line in lines):
        return ""
    losses = (line for line in lines if is_connection_loss(line) and _DISTRIBUTED.search(line))
    return clip(_RANK_PREFIX.sub("", next(losses, "")))


def runtime_error(message: str) -> str:
    """Return the informative part of a runtime's error, such as `exec: "nope": executable file not found in $PATH`."""
    line = clip(message, len(message)).removesuffix(": unknown")
    return clip(_MOUNT.sub(": ", _PULL.sub(r"\g<image>: ", _RUNTIME.sub("", line))))


def clip(text: str, limit: int = _MAX_TEXT) -> str:
    """Return a text as one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _before_agent(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(itertools.takewhile(lambda line: not _AGENT.search(line), lines))


def _after_frames(lines: Sequence[str]) -> Iterator[str]:
    """Yield the first unindented line after each indented block that contains a frame."""
    has_frame = is_ignored = False
    for line in lines:
        if line[:1].isspace() or not line:
            has_frame = has_frame or bool(_FRAME.match(line))
            continue
        if has_frame and not is_ignored and _ERROR.match(line):
            yield line
        is_ignored = line.startswith("Exception ignored in") or (is_ignored and not has_frame)
        has_frame = False


def _named(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines that look like an exception, if a traceback is interleaved with other output."""
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        yield from (line for line in lines if _NAMED_ERROR.match(line))


def _from_error_file(lines: Sequence[str]) -> Iterator[str]:
    """Yield the exception in torch's error file, which some images use as termination log."""
    text = "\n".join(lines)
    message = read_object(text).get("message") if text.startswith("{") else None
    if message is not None:
        yield str(message.get("message", "")) if isinstance(message, dict) else str(message)


def _number(text: str) -> int | None:
    match = _NUMBER.match(text)
    return int(match[0]) if match else None
