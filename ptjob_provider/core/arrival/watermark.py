"""Compact record of announced batches: a hash of each batch's name and of its content."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from ptjob_provider.core.arrival.batches import KEY_BYTES, STAMP_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ptjob_provider.core.arrival.batches import Batch

ENTRY = KEY_BYTES + STAMP_BYTES

PAGE = 3400
"""Batches per page: 63,468 characters. Airflow warns at each write of a value of 64 KB and more."""


class Watermark:
    """Batches announced by accepted events, in the order of their first announcement."""

    def __init__(self) -> None:
        self._stamps: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._stamps)

    def has(self, batch: Batch) -> bool:
        """Return whether exactly this content was announced."""
        return self._stamps.get(batch.key) == batch.stamp

    def knows(self, batch: Batch) -> bool:
        """Return whether any content was announced under this name."""
        return batch.key in self._stamps

    def add(self, batches: Iterable[Batch]) -> None:
        """Mark these as announced; earlier content of the same name is replaced."""
        self._stamps.update((batch.key, batch.stamp) for batch in batches)

    def keys(self) -> frozenset[bytes]:
        """Return the hashes of all names."""
        return frozenset(self._stamps)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Remove these names."""
        for key in keys:
            self._stamps.pop(key, None)

    def common(self, other: Watermark) -> Watermark:
        """Return the intersection: a batch missing in one must be announced again."""
        both = Watermark()
        both._stamps = {key: stamp for key, stamp in self._stamps.items() if other._stamps.get(key) == stamp}
        return both

    def pages(self) -> list[str]:
        """Return the watermark as texts; adding changes the last pages only, forgetting may change all."""
        raw = b"".join(key + stamp for key, stamp in self._stamps.items())
        step = PAGE * ENTRY
        return [base64.b64encode(raw[place : place + step]).decode() for place in range(0, len(raw), step)]

    @classmethod
    def from_pages(cls, pages: Sequence[object]) -> Watermark:
        """Parse the texts; an unreadable page counts as empty, so that its batches are announced again."""
        watermark = cls()
        for page in pages:
            raw = _decoded(page)
            for place in range(0, len(raw) - ENTRY + 1, ENTRY):
                key = raw[place : place + KEY_BYTES]
                watermark._stamps[key] = raw[place + KEY_BYTES : place + ENTRY]
        return watermark


def _decoded(page: object) -> bytes:
    if not isinstance(page, str):
        return b""
    try:
        return base64.b64decode(page, validate=True)
    except binascii.Error:
        return b""
