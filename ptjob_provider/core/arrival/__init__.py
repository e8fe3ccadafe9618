"""Training data that arrives: which batches are complete, which of them nobody was told of, how that is kept.

Everything here is a function of what a source lists and of what is known already. It reads no clock and no store, and
it never compares the store's clock with ours: order and age of files decide nothing, only whether they change.
"""

from __future__ import annotations

from ptjob_provider.core.arrival.arrivals import Arrivals
from ptjob_provider.core.arrival.batches import MARKER, Batch, BatchRules, Listing, StoredFile, group
from ptjob_provider.core.arrival.messages import MOST_BATCHES, payloads
from ptjob_provider.core.arrival.trouble import SourceTrouble, Troubles, pause_after
from ptjob_provider.core.arrival.watermark import Watermark

__all__ = [
    "MARKER",
    "MOST_BATCHES",
    "Arrivals",
    "Batch",
    "BatchRules",
    "Listing",
    "SourceTrouble",
    "StoredFile",
    "Troubles",
    "Watermark",
    "group",
    "pause_after",
    "payloads",
]
