"""Read data written by another version of this package: Airflow's database, job annotations, trigger rows.

During a rolling upgrade, and after a downgrade, versions read each other's data. Every field added to stored data has a
default, and unknown fields are ignored.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def known_fields(cls: type[Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored values of the fields that this version's dataclass has."""
    names = {each.name for each in fields(cls)}
    return {name: value for name, value in written.items() if name in names}
