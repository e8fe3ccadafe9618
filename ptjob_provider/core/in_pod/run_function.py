"""Run a user's function on every rank, and report rank 0's return value: the program of a job made from a function.

This file needs only the standard library, Python 3.10 or newer. `code.program` sends its text to pods, followed by a
call of `main` with the payload:

    {"name": name of the function, "file": its file on its author's machine, "package": package for relative imports,
     "text": the source, "values": a pickle of globals in base64, "modules": {path: source},
     "args": [JSON], "kwargs": {name: JSON},
     "late": [[name, is JSON]] of the keyword arguments that are on the command line, in this order}

The source becomes the module MODULE in a temporary folder, together with `modules`; processes that the training spawns
import it from there. It is compiled under its author's file name, so that tracebacks show that file and its lines.

Arguments are rebuilt by the function's type hints: JSON values, tuples, paths, enumerations, dates, datetimes and
dataclasses, also inside lists, maps and unions. A return value may consist of the same types. It is written to the
file that the variable RETURN_VALUE names, which is the pod's termination message. As JSON has no NaN and infinities,
they are written as the texts NaN, Infinity and -Infinity.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import datetime as dt
import enum
import importlib
import inspect
import json
import math
import os
import sys
import tempfile
import traceback
import types
import typing
from pathlib import Path, PurePath
from typing import Any

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MODULE = "ptjob_function"
"""Name of the module that contains the function while it runs; pickles of its classes and `__name__` have this name."""

RETURN_VALUE = "PTJOB_RETURN_VALUE"
"""Variable with the path of the file for rank 0's return value; if unset, the value is not written."""

MODEL = "PTJOB_MODEL_PATH"
"""Variable with the path of the declared model; rank 0 creates the folder of this path."""

KEY = "ptjob_return_value"
"""Only key of the map in that file; distinguishes a return value from the last lines of a log."""

RAISED_IN = "raised in "
"""Prefix of the line after a traceback that names function, file and line, such as `train (dags/case.py, line 3)`."""

MAX_BYTES = 4096
"""Maximum bytes of a termination message in Kubernetes."""

_RANKS = ("RANK", "PET_NODE_RANK")
_DATES = (dt.datetime, dt.date)
_SEQUENCES = (list, collections.abc.Sequence, collections.abc.Iterable)
_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_STUB = """__file__, __package__, _ptjob_text = {file!r}, {package!r}, {text!r}
__import__("linecache").cache[__file__] = (len(_ptjob_text), None, _ptjob_text.splitlines(True), __file__)
_ptjob_values = __import__("pickle").loads(__import__("base64").b64decode({values!r}))
globals().update(_ptjob_values)
exec(compile(_ptjob_text, __file__, "exec", dont_inherit=True))
globals().update(_ptjob_values)
"""


def main(payload: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> int:
    """Call the function, and return the exit code; print an exception as if the author's file had been run."""
    is_rank0 = next((environ[name] for name in _RANKS if environ.get(name)), "0") == "0"
    if is_rank0 and (model := environ.get(MODEL)):
        with contextlib.suppress(OSError):  # no write permission: the function itself reports it
            Path(model).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ptjob-function-") as folder:
        try:
            value = _call(payload, Path(folder))
            if is_rank0:
                report(payload["name"], value, environ.get(RETURN_VALUE, ""))
        except Exception as error:  # noqa: BLE001 - the outermost call of the process
            shown = traceback.format_exception(type(error), error, _from_file(error.__traceback__, payload["file"]))
            sys.stdout.flush()
            sys.stderr.write("".join(shown).replace(f"{folder}{os.sep}", "") + _where(error, payload))
            return 1
    return 0


def report(name: str, value: Any, path: str) -> None:
    """Write the return value of the function `name` to the file at `path`; None is not written.

    Raises:
        TypeError: JSON cannot represent the value.
        ValueError: the value is too large.
    """
    if value is None or not path:
        return
    try:
        text = json.dumps({KEY: plain(value)}, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, RecursionError) as error:
        raise TypeError(f"{name} returned {error}; {_RETURNABLE}") from None
    data = text.encode(errors="backslashreplace")  # of half a surrogate pair, this is the escape in JSON as well
    if len(data) > MAX_BYTES:
        raise ValueError(
            f"{name} returned {len(data):,} bytes of JSON; allowed: {MAX_BYTES:,}; write it to a claim and return its"
            " path"
        )
    Path(path).write_bytes(data)


_RETURNABLE = "allowed: JSON values, dataclasses, and numbers of NumPy and PyTorch; return float(x) or x.tolist()"


def plain(value: Any) -> Any:
    """Return the JSON value that represents a value.

    Raises:
        TypeError: JSON cannot represent the value; the text is its type.
    """
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {_key(key): plain(each) for key, each in value.items()}
    return _plain_object(value)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a map with {key!r} as a key, which is no text")
    return key


def _plain_object(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, _DATES):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value) if each.init}
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return plain(value.item())
    raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__}")


# --- arguments


def hints_of(function: Any) -> dict[str, Any]:
    """Return the type hints of a function or a class; Any for a hint that cannot be evaluated."""
    try:
        return typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - hints may use names that only type checkers import
        scope = getattr(function, "__globals__", None) or vars(sys.modules[function.__module__])
    return {name: _evaluated(hint, scope) for name, hint in function.__annotations__.items()}


def _evaluated(hint: Any, scope: dict[str, Any]) -> Any:
    try:
        return eval(hint, scope) if isinstance(hint, str) else hint  # noqa: S307 - the author's own hint
    except Exception:  # noqa: BLE001 - as above
        return Any


def rebuilt(hint: Any, value: Any) -> Any:
    """Return the value of the hinted type that a JSON value represents.

    Raises:
        TypeError, ValueError: no value of the hinted type is represented so.
    """
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _of_union(inner, value)
    if isinstance(value, list):
        return _rebuilt_list(origin, inner, value)
    if isinstance(value, dict):
        return _rebuilt_dict(origin, inner, value)
    if isinstance(value, str) and isinstance(origin, type):
        return _rebuilt_text(origin, value)
    return origin(value) if _is_enum(origin) and value is not None else value


def _of_union(members: tuple[Any, ...], value: Any) -> Any:
    """Return the value rebuilt as the first member of the union that it fits."""
    plainly = [each for each in members if type(value) is each]
    for member in [] if plainly else members:
        try:
            result = rebuilt(member, value)
        except (TypeError, ValueError):
            continue
        if result is not value:
            return result
    return value


def _rebuilt_list(origin: Any, inner: tuple[Any, ...], value: list[Any]) -> Any:
    if origin is tuple:
        is_fixed = inner and inner[-1] is not Ellipsis
        hints = inner if is_fixed else [*inner[:1], Any][:1] * len(value)
        return tuple(rebuilt(hint, each) for hint, each in zip(hints, value, strict=True))
    return [rebuilt(inner[0], each) for each in value] if origin in _SEQUENCES and inner else value


def _rebuilt_dict(origin: Any, inner: tuple[Any, ...], value: dict[str, Any]) -> Any:
    if dataclasses.is_dataclass(origin) and isinstance(origin, type):
        hints = hints_of(origin)
        return origin(**{name: rebuilt(hints.get(name, Any), each) for name, each in value.items()})
    return {key: rebuilt(inner[1], each) for key, each in value.items()} if origin in _MAPS and inner else value


def _rebuilt_text(origin: type, value: str) -> Any:
    if _is_enum(origin) or origin is float or issubclass(origin, PurePath):
        return origin(value)
    return origin.fromisoformat(value) if issubclass(origin, _DATES) else value


def _is_enum(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, enum.Enum)


def arguments(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    """Return the arguments of a call, rebuilt from JSON values by the function's type hints."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    hints = hints_of(inspect.unwrap(function))
    for name, value in bound.arguments.items():
        hint, kind = hints.get(name, Any), bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(rebuilt(hint, each) for each in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: rebuilt(hint, each) for key, each in value.items()}
        else:
            bound.arguments[name] = rebuilt(hint, value)
    return bound


# --- the function


def _call(payload: Mapping[str, Any], folder: Path) -> Any:
    names = {name: payload[name] for name in ("file", "text", "values")}
    stub = _STUB.format(**names, package=payload["package"] or None)
    for path, text in {**payload["modules"], f"{MODULE}.py": stub}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    function = getattr(importlib.import_module(MODULE), payload["name"])
    late = zip(payload.get("late", ()), sys.argv[1:], strict=False)
    given = {name: json.loads(text) if is_json else text for (name, is_json), text in late}
    bound = arguments(function, payload["args"], {**payload["kwargs"], **given})
    return function(*bound.args, **bound.kwargs)


def _where(error: BaseException, payload: Mapping[str, Any]) -> str:
    """Return a line that names the last line of the file that ran; "" if the file had not started to run."""
    steps = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in steps if frame.f_code.co_filename == payload["file"]]
    place = "/".join(Path(payload["file"]).parts[-2:])
    return f"{RAISED_IN}{payload['name']} ({place}, line {lines[-1]})\n" if lines else ""


def _from_file(trace: types.TracebackType | None, file: str) -> types.TracebackType | None:
    """Return the traceback from its first frame in the file on; all of it if no frame is in the file."""
    start = trace
    while start is not None and start.tb_frame.f_code.co_filename != file:
        start = start.tb_next
    return start or trace
