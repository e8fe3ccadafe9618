"""Build the command of a job that runs a function, `python -c` with the program as an argument, and read its value.

The program is compressed and in base64, so that it contains no `$(NAME)` that the kubelet would expand, no template
that Airflow or Argo would render, and nothing that the local back-end would take for a path.
"""

from __future__ import annotations

import base64
import inspect
import json
import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.code.arguments import plain_arguments
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.in_pod import run_function
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.versions import read_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ptjob_provider.core.code.function import FunctionSource

MAX_ARGUMENT = 120 * 1024
"""Maximum characters of the encoded program: Linux accepts at most 128 KiB as one argument of a process."""

_TERMINATION_LOG = "/dev/termination-log"
_START = (
    f"import base64,os,sys,zlib;os.environ.setdefault('{run_function.RETURN_VALUE}',sys.argv.pop(1));"
    "exec(compile(zlib.decompress(base64.b64decode(sys.argv.pop(1))),'<ptjob>','exec'))"
)


def script(
    source: FunctionSource,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    late: Sequence[tuple[str, bool]] = (),
) -> str:
    """Return a Python program that calls the function with these JSON values; see `arguments.plain_arguments`.

    `late` names the keyword arguments that follow on the program's command line, each with True for JSON, False for a
    text.
    """
    payload = {**asdict(source), "args": list(args), "kwargs": dict(kwargs or {}), "late": list(late)}
    del payload["notice"]  # it is for the person who submits the job
    call = f"raise SystemExit(main(json.loads({json.dumps(payload)!r})))"
    return f'{inspect.getsource(run_function)}\n\nif __name__ == "__main__":\n    {call}\n'


def command(text: str, *, field: str, torchrun: bool = False) -> list[str]:
    """Return the command of a container that runs the program.

    Args:
        text: the program.
        field: the function's name, for errors.
        torchrun: start the program by torchrun, with `nproc_per_node` processes.

    Raises:
        InvalidSpec: the program is too large for a command.
    """
    encoded = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    if len(encoded) > MAX_ARGUMENT:
        raise InvalidSpec.at(
            field,
            f"{len(encoded):,} bytes, compressed and with its modules and arguments, are not allowed; allowed:"
            f' {MAX_ARGUMENT:,}; let code="." bring the modules, and pass the address of large values',
        )
    start = ["torchrun", "--no-python"] if torchrun else []
    return [*start, "python", "-c", _START, _TERMINATION_LOG, encoded]


def job_command(
    source: FunctionSource,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    fields: Mapping[str, Any] | None = None,
    late: Sequence[tuple[str, bool]] = (),
) -> list[str]:
    """Return the command of a container that calls the function with these values.

    Args:
        source: the function's source.
        function: the function.
        args: its positional arguments.
        kwargs: its keyword arguments; the values of `late` ones are ignored.
        fields: the job's fields. In a TrainJob, only torchrun's processes have ranks.
        late: see `script`.

    Raises:
        InvalidSpec: an argument cannot travel, or the program is too large for a command.
    """
    names = {name for name, _ in late}
    plain_args, plain_kwargs = plain_arguments(function, args, kwargs, late=names)
    text = script(source, plain_args, plain_kwargs, late=late)
    chosen = fields or {}
    torchrun = chosen.get("nproc_per_node") is not None or str(chosen.get("kind") or "").lower() == "trainjob"
    return command(text, field=f"function {source.name}", torchrun=torchrun)


def runs_function(command: Sequence[Any] | None) -> bool:
    """Return whether the command is one of `command`'s."""
    return _START in (command or ())


def check_no_command(fields: Mapping[str, Any], names: Iterable[str], *, title: str) -> None:
    """Check that no command is given in addition to a function.

    Raises:
        InvalidSpec: one of the fields of these names is set.
    """
    for name in names:
        if fields.get(name) is not None:
            raise InvalidSpec.of(f"{title}: {name}", fields[name], "allowed: none; the function runs")


def return_value_in(message: str, tell: Callable[[str], None] | None = None) -> str:
    """Return the function's return value as JSON; "" if a termination message is something else, as the end of a log.

    A failed container's message may be a return value, too: rank 0 may return before another rank of its pod fails.
    `tell` takes a sentence about parts that had to be replaced, see `outgoing`.
    """
    value, key = read_object(message), run_function.KEY
    if value.keys() != {key}:
        return ""
    return json.dumps(outgoing({"return_value": value[key]}, tell)["return_value"])


def is_truncated(message: str) -> bool:
    """Return whether the message is a truncated return value: a pod's containers share the space for messages."""
    return message.startswith(f'{{"{run_function.KEY}":') and not return_value_in(message)
