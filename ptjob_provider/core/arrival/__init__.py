"""Data arrival: find complete batches that were not announced yet, and store which ones were.

Pure functions of a source's listing and the stored state. They read no clock and no store, and never compare the
store's clock with ours: order and age of files are irrelevant, only changes count.
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
