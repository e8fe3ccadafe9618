"""Parse a map of named settings into a frozen dataclass whose fields declare their parsers."""

from __future__ import annotations

import difflib
from dataclasses import Field, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec.literals import Word, is_unset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.spec.literals import Reader

T = TypeVar("T")

_READER = "reader"
_KEEPS_NONE = "keeps_none"


def setting(reader: Reader[Any], *, keeps_none: bool = False) -> Any:
    """Declare a field that is unset by default and otherwise parsed by this reader.

    Args:
        reader: parser of a given value.
        keeps_none: the text "None" is a valid value, not a template's rendering of None.
    """
    return field(default=None, metadata={_READER: reader, _KEEPS_NONE: keeps_none})


def words_of(declared: Field[Any]) -> tuple[str, ...]:
    """Return a field's allowed words; () if it is not limited to words."""
    reader = declared.metadata.get(_READER)
    return reader.allowed if isinstance(reader, Word) else ()


def names(cls: type) -> tuple[str, ...]:
    """Return the settings that a dataclass declares, in order."""
    return tuple(each.name for each in fields(cls))


def parse_into(cls: type[T], values: Mapping[str, Any], *, prefix: str = "") -> T:
    """Build the dataclass from named values; unset ones stay None.

    Raises:
        InvalidSpec: a name is unknown, or a value invalid; the path begins with the prefix.
    """
    for name in values:
        check_known(f"{prefix}{name}", name, names(cls))
    return cls(**{each.name: _read(each, values.get(each.name), prefix) for each in fields(cls)})  # type: ignore[arg-type]


def check_known(path: str, name: str, known: Sequence[str]) -> None:
    """Check that the name is known.

    Raises:
        InvalidSpec: it is not; the text has the closest name, else all.
    """
    if name in known:
        return
    close = difflib.get_close_matches(str(name), known, n=1)
    raise InvalidSpec(f"{path}: there is no such field; " + (f"did you mean {close[0]}?" if close else _all(known)))


def _all(known: Sequence[str]) -> str:
    return "known: " + ", ".join(known)


def _read(declared: Any, value: Any, prefix: str) -> Any:
    if value is None or (is_unset(value) and not (declared.metadata[_KEEPS_NONE] and value == "None")):
        return None
    return declared.metadata[_READER](f"{prefix}{declared.name}", value)
