"""Decide what becomes of a run's batches, from Airflow's states of its training and of the run."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_SUCCESS = "success"
_OVER = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
_NOT_BEGUN = frozenset({"none", "failed", "skipped", "upstream_failed", "removed"})


class Standing(StrEnum):
    """State of a run's reserved batches."""

    HAD = "had"
    """Consumed: its training succeeded."""
    TAKEN = "taken"
    """Open: it may still train on them."""
    FREE = "free"
    """Released: the run has ended without training on them, and they are new again."""


def standing_of(training: Collection[str], *, is_going: bool | None, reported: bool) -> Standing:
    """Return the state of one run's batches.

    Args:
        training: the states of the training task's instances, `none` for one that was never scheduled; a mapped task
            has several, and has trained when all of them have.
        is_going: the run is queued or running; None: Airflow does not know the run (any more).
        reported: the training itself has reported its success to the ledger. Only used if Airflow cannot be queried: a
            task that was cleared or failed since then has not trained.
    """
    if is_going is None:
        return Standing.HAD if reported else Standing.FREE
    if training and all(state == _SUCCESS for state in training):
        return Standing.HAD
    if is_going or not all(state in _OVER or state == "none" for state in training):
        return Standing.TAKEN
    return Standing.FREE


def may_claim_more(training: Collection[str]) -> bool:
    """Return whether a run that reserves again may get further batches: only before its training starts.

    One that runs or has succeeded got its batches before: added ones would count as consumed without being trained on.
    """
    return all(state in _NOT_BEGUN for state in training)
