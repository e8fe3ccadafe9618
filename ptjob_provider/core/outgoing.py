"""Prepare values for leaving the process, so that a value that a program wrote never stops another job.

Airflow's triggerer ends, with all of its jobs, at an integer beyond 64 bits or a lone surrogate in one event (msgpack,
3.3.2); PostgreSQL's JSONB refuses NUL; strict JSON has no NaN; readers limit the depth. So events, XComs, task state,
annotations, outputs of pipelines and a job in `-o json` pass through `outgoing`. A text that a user passes is refused
instead, before anything starts: `check_texts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.in_pod.run_function import plain

MAX_SIZE = 1024 * 1024
"""Characters of a bounded value after which other texts are cut to a few, and other lists and maps to nothing."""

EXACT_AS_FLOAT = 2**53 - 1
"""Maximum of the integers that a float keeps, in readers that have no others: Kubeflow Pipelines."""

MAX_DEPTH = 60
"""Maximum levels, also of a manifest: pydantic reads 200 levels of JSON, and Airflow stores an event with two for each.
"""

_LONGEST, _MOST, _FEW = 64 * 1024, 16_384, 64
"""Maximum characters of a text, and items of a list or map."""
_OF_A_NUMBER = 16
INT64, _UINT64 = 2**63, 2**64
_BAD_TEXT = "NUL or half of a surrogate pair"
_TOO_DEEP = f"more than {MAX_DEPTH} levels deep"
_NAMED, _PATH = 3, 120


def outgoing(
    value: Any, tell: Callable[[str], None] | None = None, *, largest: int = _UINT64 - 1, bounded: bool = True
) -> Any:
    """Return the value as JSON of plain types that every reader stores, with a text in place of what cannot travel.

    NUL and lone surrogates become U+FFFD, integers beyond 64 bits and non-finite numbers texts. Long texts, lists and
    maps are cut, and what is nested too deeply is left out.

    Args:
        value: JSON values of a program or a server; values of other types become texts.
        tell: takes one sentence that names the keys of the replaced values, if there are any.
        largest: maximum of integers that stay integers.
        bounded: limit the size, for readers that keep the value in a database.
    """
    walk = _Walk(largest, left=MAX_SIZE if bounded else math.inf)
    left = walk.part(value, "")
    named = [f"{path[:_PATH] or 'the value'} ({why})" for path, why in walk.replaced.items()]
    if named and tell is not None:
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        tell(f"values that cannot be stored as they were written have been replaced: {', '.join(named[:_NAMED])}{more}")
    return left


def readable(text: object) -> str:
    """Return the text with U+FFFD in place of NUL and of lone surrogates, which UTF-8 cannot encode; "" for None."""
    return str(text or "").replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def check_texts(field: str, value: Any) -> None:
    """Check that the texts and keys of a user's value can be sent; numbers have checks of their own.

    Raises:
        InvalidSpec: a text has NUL or a lone surrogate, or the value is too deep; the message has no text of the value.
    """
    walk = _Walk(_UINT64, left=math.inf)
    walk.part(value, field)
    for path, why in walk.replaced.items():
        if why in (_BAD_TEXT, _TOO_DEEP):
            raise InvalidSpec(f"{path[:_PATH]}: {why}; allowed: UTF-8 without NUL, at most {MAX_DEPTH} levels")


class _Walk:
    """One pass over a value.

    Attributes:
        left: the characters that the rest may have.
        replaced: the reason for each replacement, by the path in the value.
    """

    def __init__(self, largest: int, *, left: float) -> None:
        self._largest = largest
        self.left = left
        self.replaced: dict[str, str] = {}

    def part(self, value: Any, path: str, depth: int = 0) -> Any:
        self.left -= _OF_A_NUMBER
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return self._integer(int(value), path)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else self._replaced(path, "no finite number", plain(value))
        return self._parts(value, path, depth) if isinstance(value, Mapping | list | tuple) else self._text(value, path)

    def _parts(self, value: Any, path: str, depth: int) -> Any:
        is_map, parts = isinstance(value, Mapping), dict[str, Any]()
        most = 0 if depth >= MAX_DEPTH or self.left < 0 else _MOST
        for number, (key, item) in enumerate(value.items() if is_map else enumerate(value)):
            if number >= self._room(most):
                shown = f"the first {number:,} of {len(value):,} items"
                self._replaced(path, _TOO_DEEP if depth >= MAX_DEPTH else shown)
                break
            name = self._text(key, f"{path}: a key".removeprefix(": ")) if is_map else f"[{number}]"
            below = f"{path}.{name}" if is_map and path else f"{path}{name}"
            if name in parts:
                self._replaced(below, "left out: another key has become the same text")
            else:
                parts[name] = self.part(item, below, depth + 1)
        return parts if is_map else [*parts.values()]

    def _integer(self, value: int, path: str) -> Any:
        if max(-INT64, -self._largest) <= value <= self._largest:
            return value
        text = self._text(Decimal(value), path)  # `str` of an int refuses more than 4,300 digits
        return self._replaced(path, f"an integer beyond {'64 bits' if self._largest > INT64 else '2^53'}", text)

    def _text(self, value: Any, path: str) -> str:
        written = str.__str__(value) if isinstance(value, str) else str(value)
        text = readable(written)
        if text != written:
            self._replaced(path, _BAD_TEXT)
        kept = int(min(len(text), self._room(_LONGEST)))
        if kept < len(text):
            self._replaced(path, f"the first {kept:,} of {len(text):,} characters")
        self.left -= kept
        return text[:kept]

    def _room(self, most: int) -> float:
        """Return the number of characters or items that have room."""
        if self.left == math.inf and most:
            return math.inf
        return most if self.left >= 0 else min(most, _FEW)

    def _replaced(self, path: str, why: str, instead: Any = None) -> Any:
        self.replaced[path] = why
        return instead
