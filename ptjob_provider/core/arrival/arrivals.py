"""Which batches are to be announced now: the one place that decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core.arrival.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ptjob_provider.core.arrival.batches import Batch, BatchRules, Listing

REMEMBERED = 86_400.0
"""Seconds for which a batch that is not listed any more is remembered: a listing may be cut short without a word."""

SWEEP = 3600.0
"""Seconds between two times of forgetting: it rewrites the whole watermark."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    """Since which listing a batch has had this content."""

    stamp: bytes
    since: float


class Arrivals:
    """What is announced, what is about to be, and what is gone.

    A batch is announced if it was seen with the same content in two listings, of which the second was begun after the
    first had ended: a listing takes its time, and may show a marker and miss a file that was written before it. A
    marked batch needs no more than that. One without marker, and one that was announced already and has changed, must
    have stayed the same for `settle_seconds`.

    Args:
        rules: what a batch is.
        settle_seconds: by the watcher's own clock.
        watermark: what was announced before.
    """

    def __init__(self, rules: BatchRules, *, settle_seconds: float, watermark: Watermark | None = None) -> None:
        self.watermark = watermark or Watermark()
        self._rules = rules
        self._settle_seconds = settle_seconds
        self._seen: dict[bytes, _Sighting] = {}
        self._gone: dict[bytes, float] = {}
        self._swept = 0.0

    def ready(self, listing: Listing) -> list[Batch]:
        """Return the batches to announce; the same listing may be asked about again after some were taken."""
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
        """Whether a batch of this listing is ready as soon as another listing shows the same."""
        return any(
            self._seen[batch.key].since == listing.began and self._patience(batch) == 0.0
            for batch in listing.batches
            if batch.key in self._seen
        )

    def is_rewritten(self, batch: Batch) -> bool:
        """Whether another content was announced under this name."""
        return self.watermark.knows(batch) and not self.watermark.has(batch)

    def take(self, batches: Sequence[Batch]) -> None:
        """Have these as announced."""
        self.watermark.add(batches)
        for batch in batches:
            self._seen.pop(batch.key, None)

    def sweep(self, listing: Listing) -> int:
        """Forget the batches that were not listed for a day; return how many.

        A source that seems to be empty makes nothing forgotten: it may be a volume that is not mounted.
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
