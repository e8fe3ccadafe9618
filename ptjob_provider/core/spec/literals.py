"""Parse single values as rendered by templates: texts, numbers, booleans, lists and maps; independent of fields.

A parser takes the field's path and a value, and returns the canonical value or raises InvalidSpec. A rendered template
is a text, so "2" is parsed as 2 and "true" as True; the text of a list or map is not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ptjob_provider.core.errors import InvalidSpec, one_of

T = TypeVar("T")
Reader = Callable[[str, Any], T]

MAX_INT32 = 2**31 - 1
"""Maximum of counts and seconds, int32 in the CRDs."""

MAX_INT64 = 2**63 - 1
"""Maximum of a pod's counts and seconds, int64."""

MAX_PODS = 10_000
"""Maximum pods of one job: a larger number is a mistake that would only be noticed after creating many."""


def is_unset(value: object) -> bool:
    """Return whether a value is unset: None, or a template's rendering of it (`""`, `"None"`)."""
    return value is None or (isinstance(value, str) and value.strip() in {"", "None"})


def text(field: str, value: Any) -> str:
    """Parse a non-empty text."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidSpec.of(field, value, "a text that is not empty")
    return value.strip()


class Word:
    """Parser of one of these words, case-sensitive."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed

    def __call__(self, field: str, value: Any) -> str:
        """Return the word."""
        if not isinstance(value, str) or value not in self.allowed:
            raise InvalidSpec.of(field, value, one_of(self.allowed))
        return str(value)


def word(*allowed: str) -> Word:
    """Return a parser of one of these words."""
    return Word(*allowed)


def integer(minimum: int, maximum: int = MAX_INT32) -> Reader[int]:
    """Return a parser of whole numbers within both limits, including their text."""

    def read(field: str, value: Any) -> int:
        number = _whole(value)
        if number is None or not minimum <= number <= maximum:
            limit = "" if maximum == MAX_INT32 else f", at most {maximum}"
            raise InvalidSpec.of(field, value, f"a whole number, at least {minimum}{limit}")
        return number

    return read


def boolean(field: str, value: Any) -> bool:
    """Parse True, False or their text in any case."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    raise InvalidSpec.of(field, value, "true or false")


def sequence(field: str, value: Any) -> Sequence[Any]:
    """Parse a list or tuple; a text is refused, since it may mean one item or several."""
    if not isinstance(value, list | tuple):
        raise InvalidSpec.of(field, value, "a list")
    return value


def mapping(field: str, value: Any) -> Mapping[str, Any]:
    """Parse a map with text keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidSpec.of(field, value, "a map with texts as keys")
    return value


def argument(field: str, value: Any) -> str:
    """Parse one program argument or map value: a text unchanged (even an empty one), a number as its text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise InvalidSpec.of(field, value, "a text or a number")


def arguments(field: str, value: Any) -> tuple[str, ...]:
    """Parse a program's arguments."""
    if isinstance(value, str):
        raise InvalidSpec.of(
            field, value, 'a list such as ["python", "train.py"]; a shell line is written ["sh", "-c", "…"]'
        )
    return tuple(argument(f"{field}[{index}]", item) for index, item in enumerate(sequence(field, value)))


def text_map(field: str, value: Any) -> dict[str, str]:
    """Parse a map of texts; numbers become their text."""
    return {key: argument(f"{field}.{key}", item) for key, item in mapping(field, value).items()}


def _whole(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    digits = value.strip()
    return int(digits) if digits.removeprefix("-").isdecimal() and len(digits) <= len(str(MAX_INT64)) else None
