"""Hints at the end of a log that is gone, or that is not the log of the replica that failed first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.diagnosis.verdict import OF_THE_WHOLE_JOB

if TYPE_CHECKING:
    from collections.abc import Collection

    from ptjob_provider.core.snapshot import Snapshot

_NAMED = 5


def instead_of(gone: str, seen: Snapshot, shown: Collection[str]) -> str:
    """Return a sentence that a log is gone, which other ones are left, and what `ptjob get` shows."""
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


def failed_first(seen: Snapshot, shown: Collection[str]) -> str:
    """Return which replica failed first and how to show its log; "" if it is shown, or if none failed."""
    why, ref, ranks = seen.diagnosis, seen.submission.ref, seen.submission.ranks
    if why is None or why.cause in OF_THE_WHOLE_JOB or why.replica in shown or why.replica not in ranks:
        return ""
    short = _short(seen, why.replica)
    read = f"ptjob logs {ref.name} -i {short}" if why.replica in _left(seen) else f"ptjob get {ref.name}"
    return f"{short} (rank {ranks[why.replica]}) failed first: {read}"


def _left(seen: Snapshot) -> list[str]:
    """Return the replicas that have run and still have pods, with the one that failed first in front."""
    there = {seen.replica_of(pod) for pod in seen.pods}
    left = [name for name in seen.submission.ranks if name in there and seen.record.has_run(name)]
    root = seen.diagnosis.replica if seen.diagnosis else ""
    return sorted(left, key=lambda name: name != root)


def _short(seen: Snapshot, replica: str) -> str:
    return replica.removeprefix(f"{seen.submission.ref.name}-")
