"""Read data written by another version of this package: Airflow's database, job annotations, trigger rows.

During a rolling upgrade, and after a downgrade, versions read each other's data. Every field added to stored data has a
default, and unknown fields are ignored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


def known_fields(cls: type[Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored values of the fields that this version's dataclass has."""
    names = {each.name for each in fields(cls)}
    return {name: value for name, value in written.items() if name in names}


@dataclass(frozen=True, slots=True)
class Record:
    """A dataclass whose fields are JSON-safe values."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` returned, in this version or another."""
        return cls(**known_fields(cls, written))
