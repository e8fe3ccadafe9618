"""Which batches of data a training has had as new data, and which it has not: values and decisions.

`store` keeps them in a database; it alone needs SQLAlchemy, so nothing here imports it.
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
