"""Read data that another version of this package has written: in Airflow's database, on jobs, in triggers.

During a rolling upgrade and after a downgrade, versions of this package read each other's data. Every field that is
added to stored data therefore has a default, and unknown fields are ignored.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from types import NoneType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a text that somebody may have edited: JSON may have Infinity, or be nested too deep."""

_TYPES: Any = {"str": str, "int": int, "float": (int, float), "bool": bool, "None": NoneType, "tuple": (list, tuple)}


def read_object(text: str) -> dict[str, Any]:
    """Return the JSON object in a text that somebody may have edited; {} if it is anything else."""
    try:
        value = json.loads(text)
    except MALFORMED:
        return {}
    return value if isinstance(value, dict) else {}


def known_fields(cls: type[Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the written values of those fields that the dataclass has in this version, without values of other types.

    Only the types of texts, numbers and lists are compared; whoever converts a value to another type checks it.
    """
    types = {each.name: str(each.type) for each in fields(cls)}
    return {name: value for name, value in written.items() if name in types and _is_a(types[name], value)}


def _is_a(declared: str, value: object) -> bool:
    """Return whether a value from JSON has the declared type of a field, such as `int | None`."""
    types = (_TYPES.get(name.partition("[")[0], object) for name in declared.split(" | "))
    return any(isinstance(value, each) for each in types)


@dataclass(frozen=True, slots=True)
class Record:
    """Base class of dataclasses whose fields are JSON-safe values."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Self:
        """Rebuild the value from the result of `to_dict`, of this version of the package or another."""
        return cls(**known_fields(cls, written))
