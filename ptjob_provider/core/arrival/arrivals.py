"""Decide which batches to announce now; the only place that does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core.arrival.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ptjob_provider.core.arrival.batches import Batch, BatchRules, Listing

REMEMBERED = 86_400.0
"""Seconds that an unlisted batch is remembered: a listing may be truncated without an error."""

SWEEP = 3600.0
"""Seconds between two clean-ups: each rewrites the whole watermark."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    """First listing in which a batch had its current content."""

    stamp: bytes
    since: float


class Arrivals:
    """Announced, pending and vanished batches of one source.

    A batch is announced once two listings showed the same content, the second of which began after the first had ended:
    a listing takes time, and may show a marker and miss a file written before it. A marked batch needs no more. One
    without a marker, and one that was announced already and has changed, must be unchanged for `settle_seconds`.

    Args:
        rules: definition of a batch.
        settle_seconds: by the watcher's own clock.
        watermark: the announced batches so far.
    """

    def __init__(self, rules: BatchRules, *, settle_seconds: float, watermark: Watermark | None = None) -> None:
        self.watermark = watermark or Watermark()
        self._rules = rules
        self._settle_seconds = settle_seconds
        self._seen: dict[bytes, _Sighting] = {}
        self._gone: dict[bytes, float] = {}
        self._swept = 0.0

    def ready(self, listing: Listing) -> list[Batch]:
        """Return the batches to announce; may be called again for the same listing after `take`."""
        odd = listing.oddities
        open_batches = [each for each in listing.batches if each.name not in odd and not self.watermark.has(each)]
        waiting = [each for each in open_batches if each.is_marked or not self._rules.has_markers]
        before, self._seen = self._seen, {}
        for batch in waiting:
            sighting = before.get(batch.key)
            if sighting is None or sighting.stamp != batch.stamp:
                sighting = _Sighting(batch.stamp, listing.began)
            self._seen[batch.key] = sighting
        return [each for each in waiting if self._is_ready(each, listing.began)]

    def needs_confirmation(self, listing: Listing) -> bool:
        """Return whether a batch of this listing is ready as soon as another listing confirms it."""
        return any(
            self._seen[batch.key].since == listing.began and self._patience(batch) == 0.0
            for batch in listing.batches
            if batch.key in self._seen
        )

    def is_rewritten(self, batch: Batch) -> bool:
        """Return whether other content was announced under this name."""
        return self.watermark.knows(batch) and not self.watermark.has(batch)

    def take(self, batches: Sequence[Batch]) -> None:
        """Mark these as announced."""
        self.watermark.add(batches)
        for batch in batches:
            self._seen.pop(batch.key, None)

    def sweep(self, listing: Listing) -> int:
        """Forget the batches that were unlisted for a day; return how many.

        An empty source changes nothing: it may be an unmounted volume.
        """
        listed = {batch.key for batch in listing.batches}
        self._gone = {key: since for key, since in self._gone.items() if key not in listed}
        if not listed or (self._swept and listing.began - self._swept < SWEEP):
            return 0
        self._swept = listing.began
        missing = self.watermark.keys() - listed
        self._gone = {key: self._gone.get(key, listing.began) for key in missing}
        old = _older(self._gone.items(), listing.began - REMEMBERED)
        self.watermark.forget(old)
        for key in old:
            del self._gone[key]
        return len(old)

    def _is_ready(self, batch: Batch, now: float) -> bool:
        since = self._seen[batch.key].since
        return now > since and now - since >= self._patience(batch)

    def _patience(self, batch: Batch) -> float:
        is_sure = self._rules.has_markers and not self.watermark.knows(batch)
        return 0.0 if is_sure else self._settle_seconds


def _older(gone: Iterable[tuple[bytes, float]], limit: float) -> list[bytes]:
    return [key for key, since in gone if since <= limit]
