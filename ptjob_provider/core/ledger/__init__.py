"""Ledger of the batches that trainings have had as new data: values and decisions.

`store` keeps it in a database; only that needs SQLAlchemy, so nothing here imports it.
"""

from __future__ import annotations

from ptjob_provider.core.ledger.batch import Batch, batches_of
from ptjob_provider.core.ledger.handover import LIST_LIMIT, Handover, manifest_lines
from ptjob_provider.core.ledger.standing import Standing, may_claim_more, standing_of

__all__ = [
    "LIST_LIMIT",
    "Batch",
    "Handover",
    "Standing",
    "batches_of",
    "manifest_lines",
    "may_claim_more",
    "standing_of",
]
