"""Read data that another version of this package has written: in Airflow's database, on jobs, in triggers.

During a rolling upgrade and after a downgrade, versions of this package read each other's data. Every field that is
added to stored data therefore has a default, and unknown fields are ignored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


def known_fields(cls: type[Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the written values of those fields that the dataclass has in this version."""
    names = {each.name for each in fields(cls)}
    return {name: value for name, value in written.items() if name in names}


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
