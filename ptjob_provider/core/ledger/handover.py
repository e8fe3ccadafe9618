"""Data of one training for its tasks: lists while they are short, and a manifest for any number of batches."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.ledger.batch import MOST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ptjob_provider.core.ledger.batch import Batch

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
