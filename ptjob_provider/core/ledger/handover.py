"""What a training is told of its data: lists while they are short, a manifest whatever their number."""

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
"""Above so many batches there are no lists in the value that goes from task to task: Airflow's database keeps it."""


@dataclass(frozen=True, kw_only=True)
class Handover:
    """The batches of one training, each part in the order of their arrival.

    Attributes:
        earlier: those that successful trainings have had.
        new: those that are new in this one.
    """

    earlier: Sequence[Batch]
    new: Sequence[Batch]

    @property
    def version(self) -> str:
        """A text for exactly this data: how many batches, and a digest over their ids."""
        ids = "\n".join(batch.id for batch in (*self.earlier, *self.new))
        return f"{len(self.earlier) + len(self.new)}-{hashlib.sha256(ids.encode()).hexdigest()[:12]}"

    @property
    def current(self) -> list[Batch]:
        """All batches as they lie there: of one that was written anew only the newest, where the newest arrived."""
        return _current((*self.earlier, *self.new))

    def to_dict(self) -> dict[str, Any]:
        """Return what goes to the next tasks, as JSON.

        `new` and `all` are places, each once; `new_ids` has every id that counts as had by this training. `paths` is
        `all` with commas, and None if an address has one. Above `LIST_LIMIT` batches a list is None, and so is `paths`;
        `batches` and `bytes` (of all), `new_batches` and `new_bytes` still count.
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
    """Yield the manifest: a JSON object a line, one for each batch as it lies there, with `new` true or false."""
    new = {batch.id for batch in handover.new}
    for batch in handover.current:
        yield json.dumps({**batch.to_dict(), "new": batch.id in new}) + "\n"


def _current(batches: Iterable[Batch]) -> list[Batch]:
    """Keep the newest of those that lie in one place."""
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
