"""Sentences that end a log which is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from ptjob_provider.core.snapshot import Snapshot

_NAMED = 5


def instead_of(gone: str, seen: Snapshot, shown: Collection[str]) -> str:
    """Say that a log is gone, which other ones are left, and what `ptjob get` has."""
    name, left = seen.submission.ref.name, [each for each in _left(seen) if each not in shown]
    parts = [gone]
    if left:
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        names = ", ".join(_short(seen, each) for each in left[:_NAMED])
        parts.append(f"still to be read: {names}{more} (ptjob logs {name} -i {_short(seen, left[0])})")
    why = seen.diagnosis
    whose = _short(seen, why.tail_of or why.replica) if why and why.log_tail else ""
    parts.append(f"{f'last lines of {whose}' if whose else 'more'}: ptjob get {name}")
    return "; ".join(parts)


def _left(seen: Snapshot) -> list[str]:
    """Return the replicas that have run and whose pods are there, the one that failed first at the beginning."""
    there = {seen.replica_of(pod) for pod in seen.pods}
    left = [name for name in seen.submission.ranks if name in there and seen.record.has_run(name)]
    root = seen.diagnosis.replica if seen.diagnosis else ""
    return sorted(left, key=lambda name: name != root)


def _short(seen: Snapshot, replica: str) -> str:
    return replica.removeprefix(f"{seen.submission.ref.name}-")
