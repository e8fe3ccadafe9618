"""One batch of data as its arrival told it, read from what Airflow hands on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

_LENGTHS = {"id": (1, 500), "uri": (1, 2000), "modified": (0, 40)}
"""The fewest and the most characters of each text: as many as the ledger's tables have room for."""

MOST = 2**63 - 1
"""The greatest whole number that databases, and the encoding between Airflow's processes, have."""


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
            InvalidSpec: it has no id or no place, or says something that no ledger can keep.
        """
        return cls(
            id=_text("id", fields.get("id")),
            uri=_text("uri", fields.get("uri")),
            files=_count("files", fields.get("files")),
            bytes=_count("bytes", fields.get("bytes")),
            modified=_text("modified", fields.get("modified") or ""),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)


def batches_of(extra: Mapping[str, Any] | None) -> tuple[list[Batch], list[str]]:
    """Return the batches that an asset event tells of, and what is wrong with those that are left out.

    Args:
        extra: the event's. Airflow puts what a trigger fires under `payload`; whoever else makes such an event, a task
            or the API, has `batches` at the top. An event about something else has none.
    """
    told = (extra or {}).get("payload", extra)
    listed = told.get("batches") if isinstance(told, dict) else None
    found: list[Batch] = []
    wrong: list[str] = []
    for each in listed if isinstance(listed, list) else ():
        try:
            found.append(_batch(each))
        except InvalidSpec as error:
            wrong.append(str(error))
    return found, wrong


def _batch(fields: Any) -> Batch:
    if not isinstance(fields, dict):
        raise InvalidSpec.of("batch", fields, "allowed: a map with id and uri")
    return Batch.from_dict(fields)


def _text(name: str, found: Any) -> str:
    least, most = _LENGTHS[name]
    if not isinstance(found, str) or not found.isprintable() or not least <= len(found) <= most:
        raise InvalidSpec.of(f"batch.{name}", found, f"allowed: a printable text of {least} to {most} characters")
    return found


def _count(name: str, found: Any) -> int | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MOST:
        raise InvalidSpec.of(f"batch.{name}", found, "allowed: a whole number from 0 to 2^63 - 1")
    return found
