"""Plain data: globals of a function that travel with their values, as a pickle of built-in types.

Such a pickle keeps exact types, shared references and cycles, and every supported version of Python reads it.
"""

from __future__ import annotations

import base64
import io
import pickle
import pickletools
import re
from datetime import date, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_BYTES = 256 * 1024
"""Maximum size of one global, as a pickle."""

_PATHS = (type(Path()), PurePosixPath, PureWindowsPath)
_PLAIN = (complex, range, date, datetime, timedelta, timezone, re.Pattern)
"""Plain types, in addition to those that a pickle has without a call: numbers, texts, lists, maps and the like."""
_REBUILT = ("logging.Logger", "torch.dtype", "numpy.dtype")
_MAKERS = ("builtins", "datetime", "logging", "numpy", "re")
"""Modules of the classes and functions that such a pickle calls."""
_SECRET = re.compile(r"(?i)(^|_)(token|pass(word|wd|phrase)|secret|(api|access|secret|private)_?key|credentials?)$")


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PATHS:  # Python 3.13 names their module otherwise
            return eval, (f"__import__('pathlib').{kind.__name__}({str(value)!r})",)
        is_maker = isinstance(value, (type, FunctionType, BuiltinFunctionType)) and value.__module__ in _MAKERS
        if is_maker or kind in _PLAIN or is_a(value, *_REBUILT):
            return NotImplemented
        raise pickle.PicklingError(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))


class _Limited(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > MAX_BYTES:
            raise pickle.PicklingError(f"more than {MAX_BYTES:,} bytes as a pickle")
        return super().write(data)


def encoded(values: Mapping[str, Any]) -> str:
    """Return the values as a pickle in base64."""
    return base64.b64encode(_pickled(values, io.BytesIO())).decode()


def _pickled(values: Mapping[str, Any], file: io.BytesIO) -> bytes:
    _Pickler(file, 4).dump(dict(values))
    return file.getvalue()


def is_a(value: Any, *names: str) -> bool:
    """Return whether a value is of one of these classes, by their full names, because they may not be installed."""
    return any(f"{each.__module__}.{each.__qualname__}" in names for each in type(value).__mro__)


def why_it_stays(name: str, value: Any, literals: Collection[Any]) -> str:
    """Return why a global does not travel with its value; "" if it does.

    It is not plain data, is too large, or has a secret, which the job's manifest would show: a computed text
    with such a name.

    Args:
        name: the global's name.
        value: its value.
        literals: constants that the source shows anyway.
    """
    try:
        data = _pickled({name: value}, _Limited())
    except (RecursionError, pickle.PicklingError) as error:
        return f"is not plain data: {error}"
    parts = [part for code, part, _ in pickletools.genops(data) if code.name not in ("FRAME", "MEMOIZE")]
    for key, text in pairwise(parts):  # of a map, the globals as well
        is_secret = isinstance(key, str) and isinstance(text, (str, bytes)) and _SECRET.search(key)
        if is_secret and text and text not in literals:
            return f"has the secret {key!r}, which the job's manifest would show"
    return ""
