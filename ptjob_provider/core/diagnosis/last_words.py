"""What a replica said last when it died: told at once, for its log is in nobody's task, and may go with its pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.diagnosis.finding import STOPS, find, signal_of
from ptjob_provider.core.recorder import ContainerKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ptjob_provider.core.recorder import Termination

QUOTED = "    "
"""Stands before each line that is quoted."""


class LastWords:
    """Tells of each end once, whatever becomes of the job: a replica may die and be started again many times."""

    def __init__(self, *, besides: str) -> None:
        """Take the replica whose whole log is read anyway."""
        self._besides = besides
        self._told: set[str] = set()

    def of(self, ends: Iterable[Termination], *, after_success: bool = False) -> list[str]:
        """Return a notice for each of these ends that has not been told: how it came, and the last lines before it.

        With `after_success` the job had succeeded: one that was stopped then is nothing to tell of.
        """
        stops = STOPS if after_success else set()
        new = [end for end in ends if self._is_told_of(end) and signal_of(end) not in stops]
        self._told |= {end.key for end in new}
        return [_said(end) for end in new]

    def _is_told_of(self, end: Termination) -> bool:
        is_death = end.failed and not end.stopped and end.kind is ContainerKind.TRAINING
        return is_death and end.replica != self._besides and end.key not in self._told


def _said(end: Termination) -> str:
    lines = end.message.strip("\n").splitlines()
    what = f"{end.replica} {find(end, lines).did}"
    return f"\n{QUOTED}".join([f"{what}; its last lines:", *lines]) if lines else what
