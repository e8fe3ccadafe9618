"""Reading what another version of this package has written: into Airflow's database, on a job, into a trigger's row.

While workers and triggerers are upgraded one after the other, and after a downgrade, each reads what the others wrote.
So a field that is added to anything stored has a default, and one that is not known is passed over.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def known_fields(cls: type[Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was written of the fields that a dataclass has in this version."""
    names = {each.name for each in fields(cls)}
    return {name: value for name, value in written.items() if name in names}
