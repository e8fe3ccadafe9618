"""What becomes of a run's batches, decided by what Airflow says of its training and of the run."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_SUCCESS = "success"
_OVER = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
_NOT_BEGUN = frozenset({"none", "failed", "skipped", "upstream_failed", "removed"})


class Standing(StrEnum):
    """How a run stands with the batches that it claimed."""

    HAD = "had"
    """Its training succeeded: they were its new data, for good."""
    TAKEN = "taken"
    """It may still train on them."""
    FREE = "free"
    """It is over and has not trained on them: they are new again."""


def standing_of(training: Collection[str], *, is_going: bool | None, reported: bool) -> Standing:
    """Decide about one run's batches.

    Args:
        training: the states of the training task's instances, `none` for one that was never scheduled; a mapped task
            has several, and has trained when all of them have.
        is_going: whether the run is queued or running; None: Airflow does not know such a run (any more).
        reported: whether the training itself has told the ledger that it succeeded. Only asked where Airflow cannot
            be: a task that was cleared or failed since then has not trained.
    """
    if is_going is None:
        return Standing.HAD if reported else Standing.FREE
    if training and all(state == _SUCCESS for state in training):
        return Standing.HAD
    if is_going or not all(state in _OVER or state == "none" for state in training):
        return Standing.TAKEN
    return Standing.FREE


def may_claim_more(training: Collection[str]) -> bool:
    """Whether a run that claims again may be given batches besides its own: its training is still to begin.

    One that runs, or has succeeded, was told its batches before: what were added now would count as had, and nobody
    would have trained on it.
    """
    return all(state in _NOT_BEGUN for state in training)
