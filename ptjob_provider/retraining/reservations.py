"""Read batches from asset events, decide about a run's reserved batches, and describe a training's data. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.versions import Record
from ptjob_provider.retraining.batches import MOST, count, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Batch(Record):
    """Data that arrived together.

    Attributes:
        id: identifies the content; a rewritten batch has another id.
        uri: location of the batch.
        files: number of files; None if not counted.
        bytes: total size of the files; None if not counted.
        modified: when the newest file was written, by the store's clock; "" if unknown.
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
            InvalidSpec: the batch has no id or no location, or a value that the ledger cannot store.
        """
        return cls(
            id=text("batch.id", fields.get("id"), 500, least=1),
            uri=text("batch.uri", fields.get("uri"), 2000, least=1),
            files=count("batch.files", fields.get("files")),
            bytes=count("batch.bytes", fields.get("bytes")),
            modified=text("batch.modified", fields.get("modified") or "", 40),
        )


def batches_of(extra: Mapping[str, Any] | None) -> tuple[list[Batch], list[str]]:
    """Return the batches of an asset event, and the problems of those left out.

    Args:
        extra: the event's `extra`. Airflow puts the payload of a trigger under `payload`; an event of a task or of the
            API has `batches` at the top level. Unrelated events have neither.
    """
    payload = (extra or {}).get("payload", extra)
    listed = payload.get("batches") if isinstance(payload, dict) else None
    batches: list[Batch] = []
    problems: list[str] = []
    for each in listed if isinstance(listed, list) else ():
        try:
            batches.append(_batch(each))
        except InvalidSpec as error:
            problems.append(str(error))
    return batches, problems


def _batch(fields: Any) -> Batch:
    if not isinstance(fields, dict):
        raise InvalidSpec.of("batch", fields, "allowed: a map with id and uri")
    return Batch.from_dict(fields)


_SUCCESS = "success"
_OVER = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
_NOT_BEGUN = frozenset({"none", "failed", "skipped", "upstream_failed", "removed"})


class ReservationState(StrEnum):
    """State of a run's reserved batches."""

    HAD = "had"
    """Used: the run's training has succeeded."""
    TAKEN = "taken"
    """Open: the run may still train on them."""
    FREE = "free"
    """Released: the run has ended without training on them, and they are new again."""


def reservation_state(
    training: Collection[str], *, is_going: bool | None, reported: bool, was_here: bool
) -> ReservationState:
    """Return the state of one run's batches.

    Args:
        training: the states of the training task's instances, `none` for one that was never scheduled; a mapped task
            has several, and has trained when all of them have succeeded. Empty: `airflow db clean` may have deleted
            them, which keeps the last run of each DAG.
        is_going: whether the run is queued or running; None: Airflow does not have the run (any more).
        reported: whether the training has reported its success to the ledger. Used only if Airflow does not have the
            run or the task; otherwise its task may have been cleared or have failed since the report.
        was_here: whether Airflow's database once had the run. A run that it has lost since was deleted; one that it
            never had may be going elsewhere, or began after the backup that the database was restored from.
    """
    if reported and (is_going is None or not training):
        return ReservationState.HAD
    if is_going is None:
        return ReservationState.FREE if was_here else ReservationState.TAKEN
    if training and all(state == _SUCCESS for state in training):
        return ReservationState.HAD
    if is_going or not all(state in _OVER or state == "none" for state in training):
        return ReservationState.TAKEN
    return ReservationState.FREE


def may_reserve_more(training: Collection[str]) -> bool:
    """Return whether a run that reserves again may get further batches: only before its training starts.

    A training that runs or has succeeded does not read batches that are added later; they would count as used.
    """
    return all(state in _NOT_BEGUN for state in training)


LIST_LIMIT = 1000
"""Maximum batches listed in the XCom value, which Airflow's database stores."""


@dataclass(frozen=True, kw_only=True)
class Handover:
    """Batches of one training, each part in the order of their arrival.

    Attributes:
        earlier: batches of earlier, successful trainings.
        new: batches that are new in this training.
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
        """Return all existing batches: of a rewritten one only the newest, at the position of the newest's arrival."""
        return _current((*self.earlier, *self.new))

    def to_dict(self) -> dict[str, Any]:
        """Return the XCom value for the next tasks; JSON values only.

        `new` and `all` are locations, each once; `new_ids` has every id that this training uses. `paths` is `all`
        separated by commas, and None if a location contains a comma. Above `LIST_LIMIT` batches a list is None, and so
        is `paths`; `batches` and `bytes` (of all), `new_batches` and `new_bytes` are always set.
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
