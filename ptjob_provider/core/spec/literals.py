"""Reads one value as templates render it: texts, numbers, switches, lists and maps. It knows no field of a job.

A reader takes the field's path and a value, and returns the value in its one form or raises InvalidSpec. A rendered
template is a text, so "2" is read as 2 and "true" as True; the text of a list or map is not guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ptjob_provider.core.errors import InvalidSpec, one_of

T = TypeVar("T")
Reader = Callable[[str, Any], T]

MAX_INT32 = 2**31 - 1
"""The CRDs keep counts and seconds as int32."""

MAX_INT64 = 2**63 - 1
"""Those of pods are int64."""

MAX_PODS = 10_000
"""Pods of one job: a larger number is a slip, and would only be found out after very many of them."""


def is_unset(value: object) -> bool:
    """Whether a value says nothing: None, or what a template makes of nothing (`""`, `"None"`)."""
    return value is None or (isinstance(value, str) and value.strip() in {"", "None"})


def text(field: str, value: Any) -> str:
    """Read a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidSpec.of(field, value, "a text that is not empty")
    return value.strip()


class Word:
    """Reads one of these words, exactly as written here."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed

    def __call__(self, field: str, value: Any) -> str:
        """Return the word."""
        if not isinstance(value, str) or value not in self.allowed:
            raise InvalidSpec.of(field, value, one_of(self.allowed))
        return str(value)


def word(*allowed: str) -> Word:
    """Return a reader of one of these words."""
    return Word(*allowed)


def integer(minimum: int, maximum: int = MAX_INT32) -> Reader[int]:
    """Return a reader of whole numbers within both limits; their text is read too."""

    def read(field: str, value: Any) -> int:
        number = _whole(value)
        if number is None or not minimum <= number <= maximum:
            limit = "" if maximum == MAX_INT32 else f", at most {maximum}"
            raise InvalidSpec.of(field, value, f"a whole number, at least {minimum}{limit}")
        return number

    return read


def boolean(field: str, value: Any) -> bool:
    """Read True, False or their text in any case."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    raise InvalidSpec.of(field, value, "true or false")


def sequence(field: str, value: Any) -> Sequence[Any]:
    """Read a list or tuple; a text is refused, because whether it is one item or several would be a guess."""
    if not isinstance(value, list | tuple):
        raise InvalidSpec.of(field, value, "a list")
    return value


def mapping(field: str, value: Any) -> Mapping[str, Any]:
    """Read a map whose keys are texts."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidSpec.of(field, value, "a map with texts as keys")
    return value


def argument(field: str, value: Any) -> str:
    """Read one program argument or map value: a text as it is (also an empty one), a number as its text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise InvalidSpec.of(field, value, "a text or a number")


def arguments(field: str, value: Any) -> tuple[str, ...]:
    """Read a program's arguments."""
    if isinstance(value, str):
        raise InvalidSpec.of(
            field, value, 'a list such as ["python", "train.py"]; a shell line is written ["sh", "-c", "…"]'
        )
    return tuple(argument(f"{field}[{index}]", item) for index, item in enumerate(sequence(field, value)))


def text_map(field: str, value: Any) -> dict[str, str]:
    """Read a map of texts; numbers become their text."""
    return {key: argument(f"{field}.{key}", item) for key, item in mapping(field, value).items()}


def _whole(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    digits = value.strip()
    return int(digits) if digits.removeprefix("-").isdecimal() and len(digits) <= len(str(MAX_INT64)) else None
