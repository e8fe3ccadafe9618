"""Interpret Workloads of Kueue, which keeps jobs suspended until their queue has room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.recorder import WORKLOAD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
"""Label on a Workload: the uid of its owner."""

_TELLING = ("Evicted", "QuotaReserved", "Admitted")
"""Conditions of a Workload that hold a job back, in order of precedence."""


def owner_of(workload: Mapping[str, Any]) -> str:
    """Return the uid of a Workload's job; "" if unknown."""
    meta = workload["metadata"]
    owners = [owner.get("uid") or "" for owner in meta.get("ownerReferences") or () if owner.get("controller")]
    return str((meta.get("labels") or {}).get(JOB_UID_LABEL) or next(iter(owners), ""))


def as_event(workload: Mapping[str, Any]) -> Manifest | None:
    """Return a Workload's reason for waiting as a core/v1 Event; None if it has none."""
    meta, status = workload["metadata"], workload.get("status") or {}
    found = {each["type"]: each for each in status.get("conditions") or ()}
    for name in _TELLING:
        condition = found.get(name, {})
        if condition.get("status") == ("True" if name == "Evicted" else "False") and condition.get("message"):
            about = {"kind": WORKLOAD, "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
            told = {"reason": condition.get("reason") or name, "message": condition["message"], "type": "Warning"}
            since = {"lastTimestamp": condition.get("lastTransitionTime")}
            return {"metadata": {"uid": meta["uid"]}, "involvedObject": about, **told, **since}
    return None
