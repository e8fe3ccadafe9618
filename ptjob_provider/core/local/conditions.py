"""Update a PyTorchJob's conditions by training-operator 1.9's rules (its `pkg/util/status.go`). Pure.

Each type occurs at most once, a changed one moves to the end, Running and Restarting remove each other, the end sets
Running to false, and after Failed nothing changes any more.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Condition = dict[str, Any]
Status = dict[str, Any]

_RIVALS = {"Running": "Restarting", "Restarting": "Running"}


def has(status: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition is present and true."""
    return any(
        condition["type"] == kind and condition["status"] == "True" for condition in status.get("conditions", ())
    )


def is_finished(status: Mapping[str, Any]) -> bool:
    """Return whether the job has succeeded or failed."""
    return has(status, "Succeeded") or has(status, "Failed")


def with_condition(
    status: Mapping[str, Any], kind: str, message: str, *, now: datetime, truth: str = "True", reason: str = ""
) -> Status:
    """Return the status with the condition set; the default reason is the operator's for this type."""
    fresh = {
        "type": kind,
        "status": truth,
        "reason": reason or f"PyTorchJob{kind}",
        "message": message,
        "lastUpdateTime": instant(now),
        "lastTransitionTime": instant(now),
    }
    conditions: Sequence[Condition] = status.get("conditions", ())
    current = next((condition for condition in conditions if condition["type"] == kind), None)
    if has(status, "Failed") or (current and _same(current, fresh)):
        return dict(status)
    if current and current["status"] == truth:
        fresh["lastTransitionTime"] = current["lastTransitionTime"]
    return {**status, "conditions": [*_others(conditions, kind), fresh]}


def instant(moment: datetime) -> str:
    """Format an instant like the API server, with microseconds, which show which replica failed first."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _others(conditions: Sequence[Condition], kind: str) -> list[Condition]:
    kept = [condition for condition in conditions if condition["type"] not in (kind, _RIVALS.get(kind))]
    if kind not in ("Succeeded", "Failed"):
        return kept
    return [{**condition, "status": "False"} if condition["type"] == "Running" else condition for condition in kept]


def _same(current: Condition, fresh: Condition) -> bool:
    return (current["status"], current["reason"]) == (fresh["status"], fresh["reason"])
