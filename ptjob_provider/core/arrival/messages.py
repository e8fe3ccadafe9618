"""Payloads of arrival events."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ptjob_provider.core.arrival.batches import Batch

MOST_BATCHES = 200
"""Maximum batches in one event: about 40 KB. Airflow writes each event to the triggerer's log, and a record of 8 MB
blocks the loop that all triggers share for seconds."""


def payloads(source: str, batches: Sequence[Batch], *, together: bool) -> Iterator[dict[str, Any]]:
    """Yield the payloads for these batches: one each, or one for all, split if there are very many."""
    size = MOST_BATCHES if together else 1
    for place in range(0, len(batches), size):
        yield payload(source, batches[place : place + size])


def payload(source: str, batches: Sequence[Batch]) -> dict[str, Any]:
    """Return the payload of one event; the version depends on the contents alone."""
    return {
        "source": source,
        "version": _version([batch.id for batch in batches]),
        "batches": [batch.to_dict(source) for batch in batches],
        "files": sum(batch.files for batch in batches),
        "bytes": sum(batch.size for batch in batches),
    }


def _version(ids: Sequence[str]) -> str:
    if len(ids) == 1:
        return ids[0]
    digest = hashlib.sha256("\n".join(sorted(ids)).encode(errors="surrogateescape"))
    return f"{len(ids)}-batches@{digest.hexdigest()[:12]}"
