"""Stands in for Argo where it decides whether a step is started again, as seen with KFP 2.17.0 and Argo 4.0.5.

    how the step ended                       stock 2.17.0            without `templateDefaults`
    --------------------------------------   ---------------------   --------------------------
    its container failed, with -9 as well    never                   as often as `set_retry` says
    its pod is gone                          up to twice             never

What repeats is either a pod of the same name that is told the same number, or the next one; which, is a race.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfp_cluster.step_pod import Try

LIMIT = 2
"""Of the stock `templateDefaults`."""


class Ended(StrEnum):
    """How a step ended that has not succeeded."""

    FAILED = "failed"
    GONE = "its pod is gone"


@dataclass(frozen=True, kw_only=True)
class EngineStandIn:
    """An Argo.

    Attributes:
        is_stock: whether it has `templateDefaults.retryStrategy {limit: 2, retryPolicy: OnError}`.
        retries: of the step, as `set_retry` says; None: its author has not said so.
        same_name: how the race ends.
    """

    is_stock: bool
    retries: int | None = None
    same_name: bool = True

    def first(self, attempt: Try) -> Try:
        """Return the first try of a step."""
        asked = None if self.retries is None else 0
        return replace(attempt, retry=asked, number=0 if self.is_stock or asked == 0 else None)

    def after(self, attempt: Try, ended: Ended) -> Try | None:
        """Return the try that follows one that has ended; None if none does."""
        limit = self.retries if self.retries is not None else LIMIT if self.is_stock else 0
        number = attempt.number or 0
        if (ended is Ended.GONE) is not self.is_stock or number >= limit:
            return None
        if self.is_stock and self.same_name:
            return attempt
        return replace(attempt, retry=None if attempt.retry is None else number + 1, number=number + 1)
