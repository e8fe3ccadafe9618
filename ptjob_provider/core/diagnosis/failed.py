"""List the replicas that failed by themselves, for programs; also for a job that succeeded by its rank 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.diagnosis.failure import suspects_of
from ptjob_provider.core.diagnosis.verdict import named
from ptjob_provider.core.recorder import ContainerKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.recorder import Record

_TOLD = 3


def failed_replicas(record: Record, *, ranks: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return [{replica, rank, exit_code, cause, message}] of the replicas whose last run failed, by rank.

    Stopped replicas are left out: the operator stops what still runs when rank 0 has ended. `cause` is a `Cause`,
    `message` completes "worker-0 …"; `rank` and `exit_code` are None if unknown.
    """
    last = [one for one in suspects_of(record) if not record.is_superseded(one.end)]
    failed = [one for one in last if one.end.kind is not ContainerKind.SIDECAR and not one.was_only_stopped]
    by_replica = {one.end.replica: one for one in sorted(failed, key=lambda one: one.end.ended_at)}
    return [
        {
            "replica": name,
            "rank": ranks.get(name),
            "exit_code": by_replica[name].end.exit_code,
            "cause": by_replica[name].finding.cause.value,
            "message": by_replica[name].finding.say(),
        }
        for name in sorted(by_replica, key=lambda name: (ranks.get(name, len(ranks)), name))
    ]


def told_of(failed: Sequence[Mapping[str, Any]]) -> str:
    """Return the first few of `failed_replicas` as a sentence's end; "" if there are none."""
    known = {one["replica"]: one["rank"] for one in failed if one["rank"] is not None}
    more = [f"{len(failed) - _TOLD} more failed"] if len(failed) > _TOLD else []
    return "; ".join([*(f"{named(one['replica'], known)} {one['message']}" for one in failed[:_TOLD]), *more])
