"""Plain data: globals of a function that travel with their values, as a pickle of built-in types.

Such a pickle keeps exact types, shared references and cycles, and every supported version of Python reads it.
"""

from __future__ import annotations

import base64
import copyreg
import io
import pickle
import re
from datetime import date, datetime, timedelta, timezone
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import NoneType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

MAX_PARTS = 64 * 1024
"""Maximum size of one global: its objects, and the characters and bytes of its texts."""

_CONTAINERS = (dict, list, tuple, set, frozenset)
_PATHS = (type(Path()), PurePosixPath, PureWindowsPath)
_PLAIN = {NoneType, bool, int, float, complex, range, date, datetime, timedelta, timezone, re.Pattern}
_PLAIN.update(_CONTAINERS, _PATHS, (str, bytes, bytearray))
_REBUILT = ("logging.Logger", "torch.dtype", "numpy.dtype")
_SECRET = re.compile(r"(?i)(^|_)(token|password|passwd|secret|api_?key|credentials?)$")


def _path(path: Any) -> tuple[Any, ...]:
    return eval, (f"__import__('pathlib').{type(path).__name__}({str(path)!r})",)


class _Pickler(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table | dict.fromkeys(_PATHS, _path)  # Python 3.13 names their module otherwise


def encoded(values: Mapping[str, Any]) -> str:
    """Return the values as a pickle in base64."""
    file = io.BytesIO()
    _Pickler(file, 4).dump(dict(values))
    return base64.b64encode(file.getvalue()).decode()


def is_a(value: Any, *names: str) -> bool:
    """Return whether a value is of one of these classes, by their full names, because they may not be installed."""
    return any(f"{each.__module__}.{each.__qualname__}" in names for each in type(value).__mro__)


def examined(name: str, value: Any, literals: Collection[Any]) -> tuple[str, str]:
    """Return the type of a part that is not plain data, and why plain data must not travel; "" if there is none.

    Plain data that is too large does not travel, nor does a secret, which the job's manifest would show.

    Args:
        name: the global's name.
        value: its value.
        literals: constants that the source shows anyway.
    """
    parts = [*islice(_parts(name, value), MAX_PARTS)]
    texts = [(key, part) for key, part in parts if isinstance(part, (str, bytes, bytearray))]
    for kind in (type(part) for _, part in parts if type(part) not in _PLAIN and not is_a(part, *_REBUILT)):
        return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), ""
    if len(parts) + sum(len(text) for _, text in texts) >= MAX_PARTS:
        return "", f"is too large: at most {MAX_PARTS:,} objects, characters and bytes travel"
    for key in (key for key, text in texts if _SECRET.search(key) and text and text not in [*literals]):
        return "", f"has the secret {key!r}, which the job's manifest would show"
    try:
        encoded({name: value})
    except (RecursionError, pickle.PicklingError):
        return "", "is nested too deeply, or is a logger that nobody can get by its name"
    return "", ""


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the value and what is in it, each container once, with the nearest key that is a text."""
    todo, seen = [(name, value)], set()
    while todo:
        key, part = todo.pop()
        yield key, part
        if type(part) in (*_CONTAINERS, datetime) and id(part) not in seen:
            seen.add(id(part))
            inner = [part.tzinfo] if isinstance(part, datetime) else part
            todo += [(key, each) for each in inner]
            pairs = part.items() if isinstance(part, dict) else ()
            todo += [(each if isinstance(each, str) else key, item) for each, item in pairs]
