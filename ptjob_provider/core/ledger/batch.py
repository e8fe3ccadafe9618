"""One batch of data from an arrival event of Airflow."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

_LENGTHS = {"id": (1, 500), "uri": (1, 2000), "modified": (0, 40)}
"""Minimum and maximum characters of each text, as in the ledger's columns."""

MOST = 2**63 - 1
"""Maximum integer of databases and of the encoding between Airflow's processes."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Data that arrived together.

    Attributes:
        id: identifies the content; a rewritten batch has another one.
        uri: its location.
        files: number of files; None if not counted.
        bytes: their total size; None if not counted.
        modified: when its newest file was written, by the store's clock; "" if unknown.
    """

    id: str
    uri: str
    files: int | None = None
    bytes: int | None = None
    modified: str = ""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Parse a batch of an event.

        Raises:
            InvalidSpec: it has no id or no location, or a value that the ledger cannot store.
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
    """Return the batches of an asset event, and the problems of those left out.

    Args:
        extra: the event's. Airflow puts a trigger's event under `payload`; events of others, a task or the API, have
            `batches` at the top. Unrelated events have neither.
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
