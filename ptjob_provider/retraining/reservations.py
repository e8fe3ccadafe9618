"""Batches of a training: from asset events, what becomes of them after a run, and how they are handed over. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.versions import Record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_LENGTHS = {"id": (1, 500), "uri": (1, 2000), "modified": (0, 40)}
"""Minimum and maximum characters of each text, as in the ledger's columns."""

MOST = 2**63 - 1
"""Maximum integer of databases and of the encoding between Airflow's processes."""


@dataclass(frozen=True, kw_only=True)
class Batch(Record):
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


_SUCCESS = "success"
_OVER = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
_NOT_BEGUN = frozenset({"none", "failed", "skipped", "upstream_failed", "removed"})


class ReservationState(StrEnum):
    """State of a run's reserved batches."""

    HAD = "had"
    """Consumed: its training succeeded."""
    TAKEN = "taken"
    """Open: it may still train on them."""
    FREE = "free"
    """Released: the run has ended without training on them, and they are new again."""


def reservation_state(training: Collection[str], *, is_going: bool | None, reported: bool) -> ReservationState:
    """Return the state of one run's batches.

    Args:
        training: the states of the training task's instances, `none` for one that was never scheduled; a mapped task
            has several, and has trained when all of them have.
        is_going: the run is queued or running; None: Airflow does not know the run (any more).
        reported: the training itself has reported its success to the ledger. Only used if Airflow cannot be queried: a
            task that was cleared or failed since then has not trained.
    """
    if is_going is None:
        return ReservationState.HAD if reported else ReservationState.FREE
    if training and all(state == _SUCCESS for state in training):
        return ReservationState.HAD
    if is_going or not all(state in _OVER or state == "none" for state in training):
        return ReservationState.TAKEN
    return ReservationState.FREE


def may_claim_more(training: Collection[str]) -> bool:
    """Return whether a run that reserves again may get further batches: only before its training starts.

    One that runs or has succeeded got its batches before: added ones would count as consumed without being trained on.
    """
    return all(state in _NOT_BEGUN for state in training)


LIST_LIMIT = 1000
"""Maximum batches listed in the value that goes from task to task: Airflow's database stores it."""


@dataclass(frozen=True, kw_only=True)
class Handover:
    """The batches of one training, each part in the order of their arrival.

    Attributes:
        earlier: those of successful earlier trainings.
        new: those that are new in this one.
    """

    earlier: Sequence[Batch]
    new: Sequence[Batch]

    @property
    def version(self) -> str:
        """Return a text that identifies this data: the number of batches, and a digest over their ids."""
        ids = "\n".join(batch.id for batch in (*self.earlier, *self.new))
        return f"{len(self.earlier) + len(self.new)}-{hashlib.sha256(ids.encode()).hexdigest()[:12]}"

    @property
    def current(self) -> list[Batch]:
        """Return all existing batches: of a rewritten one only the newest, at the position of its arrival."""
        return _current((*self.earlier, *self.new))

    def to_dict(self) -> dict[str, Any]:
        """Return the value for the next tasks, as JSON.

        `new` and `all` are locations, each once; `new_ids` has every id that this training consumes. `paths` is `all`
        separated by commas, and None if an address contains one. Above `LIST_LIMIT` batches a list is None, and so is
        `paths`; `batches` and `bytes` (of all), `new_batches` and `new_bytes` still count.
        """
        new, every = _current(self.new), self.current
        uris = _bounded([batch.uri for batch in every])
        return {
            "version": self.version,
            "new": _bounded([batch.uri for batch in new]),
            "new_ids": _bounded([batch.id for batch in self.new]),
            "all": uris,
            "paths": _joined(uris),
            "batches": len(every),
            "bytes": _bytes(every),
            "new_batches": len(new),
            "new_bytes": _bytes(new),
        }


def manifest_lines(handover: Handover) -> Iterator[str]:
    """Yield the manifest: one JSON object per line for each existing batch, with `new` true or false."""
    new = {batch.id for batch in handover.new}
    for batch in handover.current:
        yield json.dumps({**batch.to_dict(), "new": batch.id in new}) + "\n"


def _current(batches: Iterable[Batch]) -> list[Batch]:
    """Keep the newest batch of each location."""
    newest: dict[str, Batch] = {}
    for batch in batches:
        newest.pop(batch.uri, None)
        newest[batch.uri] = batch
    return list(newest.values())


def _bounded(values: list[str]) -> list[str] | None:
    return values if len(values) <= LIST_LIMIT else None


def _joined(uris: list[str] | None) -> str | None:
    return None if uris is None or any("," in uri for uri in uris) else ",".join(uris)


def _bytes(batches: Iterable[Batch]) -> int:
    return min(sum(batch.bytes or 0 for batch in batches), MOST)
