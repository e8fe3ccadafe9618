"""Stand-in for Argo's decision to retry a step, as observed with KFP 2.17.0 and Argo 4.0.5.

    how the step ended                       stock 2.17.0            without `templateDefaults`
    --------------------------------------   ---------------------   --------------------------
    its container failed, with -9 as well    never                   as often as `set_retry` says
    its pod is gone                          up to twice             never

A retry is either a pod with the same name and number, or the next number; which of them depends on a race.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfp_cluster.step_pod import Try

LIMIT = 2
"""Limit in the stock `templateDefaults`."""


class Ended(StrEnum):
    """How an unsuccessful step ended."""

    FAILED = "failed"
    GONE = "its pod is gone"


@dataclass(frozen=True, kw_only=True)
class EngineStandIn:
    """A configuration of Argo.

    Attributes:
        is_stock: True if it has `templateDefaults.retryStrategy {limit: 2, retryPolicy: OnError}`.
        retries: Retries of the step, as in `set_retry`. None: not set.
        same_name: Result of the race: True if the retry has the same pod name.
    """

    is_stock: bool
    retries: int | None = None
    same_name: bool = True

    def first(self, attempt: Try) -> Try:
        asked = None if self.retries is None else 0
        return replace(attempt, retry=asked, number=0 if self.is_stock or asked == 0 else None)

    def after(self, attempt: Try, ended: Ended) -> Try | None:
        """Return the try that follows an ended one, or None if there is none."""
        limit = self.retries if self.retries is not None else LIMIT if self.is_stock else 0
        number = attempt.number or 0
        if (ended is Ended.GONE) is not self.is_stock or number >= limit:
            return None
        if self.is_stock and self.same_name:
            return attempt
        return replace(attempt, retry=None if attempt.retry is None else number + 1, number=number + 1)
