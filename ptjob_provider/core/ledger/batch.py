"""One batch of data as its arrival told it, read from what Airflow hands on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

_ID_LENGTH = 500
_URI_LENGTH = 2000


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Data that arrived together.

    Attributes:
        id: says what it is, byte for byte: a batch that is written anew has another one.
        uri: where it lies.
        files: how many files; None if nobody counted.
        bytes: how large they are together; None if nobody counted.
        modified: when its youngest file was written, as the store said; empty if it did not.
    """

    id: str
    uri: str
    files: int | None = None
    bytes: int | None = None
    modified: str = ""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Read a batch of an event.

        Raises:
            InvalidSpec: it has no id or no place, or says something that is none.
        """
        texts = {"id": _ID_LENGTH, "uri": _URI_LENGTH}
        for name, limit in texts.items():
            if not isinstance(found := fields.get(name), str) or not found or len(found) > limit:
                raise InvalidSpec.of(f"batch.{name}", found, f"a text of 1 to {limit} characters")
        counts = {name: _count(name, fields.get(name)) for name in ("files", "bytes")}
        return cls(id=fields["id"], uri=fields["uri"], modified=str(fields.get("modified") or ""), **counts)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)


def batches_of(extra: Mapping[str, Any] | None) -> list[Batch] | None:
    """Return the batches that an asset event tells of; None if it is not about batches.

    Args:
        extra: the event's. Airflow puts what a trigger fires under `payload`; whoever else makes such an event, a task
            or the API, has `batches` at the top.

    Raises:
        InvalidSpec: one of them is no batch.
    """
    told = (extra or {}).get("payload", extra)
    found = told.get("batches") if isinstance(told, dict) else None
    if not isinstance(found, list):
        return None
    return [_batch(each) for each in found]


def _batch(fields: Any) -> Batch:
    if not isinstance(fields, dict):
        raise InvalidSpec.of("batch", fields, "a map with id and uri")
    return Batch.from_dict(fields)


def _count(name: str, found: Any) -> int | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise InvalidSpec.of(f"batch.{name}", found, "a whole number from 0")
    return found
