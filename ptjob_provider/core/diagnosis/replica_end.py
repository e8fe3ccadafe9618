"""Report the last lines of a replica when it dies: its log is in no task, and may be deleted with its pod."""

from __future__ import annotations

from signal import SIGKILL
from typing import TYPE_CHECKING

from ptjob_provider.core.diagnosis.classify import STOPS, find, signal_of
from ptjob_provider.core.history import ContainerKind

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ptjob_provider.core.history import Termination

QUOTED = "    "
"""Prefix of each quoted line."""


class LastWords:
    """Reports each end once, whatever the job's outcome: a replica may die and be restarted many times."""

    def __init__(self, *, besides: str) -> None:
        """Exclude the replica whose whole log is read anyway."""
        self._besides = besides
        self._told: set[str] = set()

    def of(
        self, ends: Iterable[Termination], *, after_success: bool = False, over_at: datetime | None = None
    ) -> list[str]:
        """Return a notice for each new end: how it ended, and its last lines.

        With `after_success`, replicas that were stopped after the job's success are not reported. The job failed at
        `over_at`.
        """
        stops = STOPS if after_success else set()
        new = [end for end in ends if self._is_told_of(end) and signal_of(end) not in stops]
        self._told |= {end.key for end in new}
        return [_said(end, over_at) for end in new]

    def _is_told_of(self, end: Termination) -> bool:
        is_death = end.failed and not end.stopped and end.kind is ContainerKind.TRAINING
        return is_death and end.replica != self._besides and end.key not in self._told


def is_clean_up(end: Termination, over_at: datetime | None) -> bool:
    """Return whether a replica was stopped after the job failed, as the operator stops whatever still runs."""
    by_signal = signal_of(end) in {SIGKILL, *STOPS} and end.reason != "OOMKilled"
    return by_signal and over_at is not None and end.ended_at > over_at


def _said(end: Termination, over_at: datetime | None) -> str:
    lines = end.message.strip("\n").splitlines()
    how = "was stopped after the job's end" if is_clean_up(end, over_at) else find(end, lines).did
    what = f"{end.replica} {how}"
    return f"\n{QUOTED}".join([f"{what}; its last lines:", *lines]) if lines else what
