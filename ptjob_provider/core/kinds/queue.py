"""Explain why a job waits: the reasons in Kueue's Workloads, and quotas that are too small for the whole job.

The API server reports one pod's request, the used amount and the limit (`exceeded quota: compute, requested:
limits.memory=900Mi, used: limits.memory=900Mi, limited: limits.memory=1Gi`), but not how much of the used amount is
that of the job's other pods. Their requests are read from the job's object; requests that only a runtime or a
LimitRange sets count as zero.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.history import WORKLOAD, WaitKind
from ptjob_provider.core.spec.pods import amount

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ptjob_provider.core.history import PodHistory
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds.kind import Replica
    from ptjob_provider.core.spec import TrainingJob

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
"""Label on a Workload: the uid of its owner."""

_BLOCKING = ("Evicted", "QuotaReserved", "Admitted")
"""Conditions of a Workload that hold a job back, in order of precedence."""

_IN_VAIN = {
    "Deactivated": "waiting does not help until the Workload's spec.active is true again",
    "Misconfigured": "waiting does not help until the queue exists and its configuration is right",
    "NoMatchingFlavor": "waiting does not help: no flavor of the queue has nodes that the job may run on",
    "ExceedsMaxQuota": "waiting does not help: the job requests more than the queue can ever have",
}
"""Advice for the reasons of `QuotaReserved` that Kueue gives since 0.19; earlier versions only give `Pending`."""


def label_of(job: TrainingJob) -> dict[str, str]:
    """Return the label by which Kueue finds the job; empty for a job without a queue."""
    return {} if job.queue_name is None else {QUEUE_LABEL: job.queue_name}


def owner_of(workload: Mapping[str, Any]) -> str:
    """Return the uid of a Workload's job; "" if unknown."""
    meta = workload["metadata"]
    owners = [owner.get("uid") or "" for owner in meta.get("ownerReferences") or () if owner.get("controller")]
    return str((meta.get("labels") or {}).get(JOB_UID_LABEL) or next(iter(owners), ""))


def as_event(workload: Mapping[str, Any]) -> Manifest | None:
    """Return a Workload's reason for waiting as a core/v1 Event; None without a reason."""
    meta, status = workload["metadata"], workload.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    for name in _BLOCKING:
        condition = conditions.get(name, {})
        if condition.get("status") == ("True" if name == "Evicted" else "False") and condition.get("message"):
            about = {"kind": WORKLOAD, "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
            reason = condition.get("reason") or name
            advice = f" ({reason}: {_IN_VAIN[reason]})" if reason in _IN_VAIN else ""
            reported = {"reason": reason, "message": f"{condition['message']}{advice}", "type": "Warning"}
            since = {"lastTimestamp": condition.get("lastTransitionTime")}
            return {"metadata": {"uid": meta["uid"]}, "involvedObject": about, **reported, **since}
    return None


_REFUSAL = re.compile(
    r"exceeded quota: (?P<quota>[^\s,]+), requested: (?P<requested>\S+), used: \S+, limited: (?P<limited>\S+)"
)
_PODS = ("pods", "count/pods")


def with_vain_waits(history: PodHistory, replicas: Sequence[Replica]) -> PodHistory:
    """Return the history with the reason why waiting cannot help on each refused pod that has such a reason.

    Args:
        history: the job's pod history.
        replicas: all replicas of the job.
    """
    waiting = (
        replace(wait, in_vain=_why_in_vain(wait.message, wait.replica, replicas))
        if wait.kind is WaitKind.REFUSED
        else wait
        for wait in history.waiting
    )
    return replace(history, waiting=tuple(waiting))


def _why_in_vain(message: str, refused: str, replicas: Sequence[Replica]) -> str:
    try:
        return _too_small(message, refused, replicas)
    except (InvalidSpec, KeyError):  # the message is truncated, or another version's
        return ""


def _too_small(message: str, refused: str, replicas: Sequence[Replica]) -> str:
    match = _REFUSAL.search(message)
    if match is None:
        return ""
    quota, limited = match["quota"], _amounts(match["limited"])
    for resource, requested in _amounts(match["requested"]).items():
        allowed = limited[resource]
        if amount(requested) > amount(allowed):
            why = f"less than the {requested} requested at once"
            return f"the quota {quota} allows {resource}={allowed} in all, {why}, so waiting does not help"
        total = sum((_requested_by(each, refused, replicas, resource, requested) for each in replicas), Decimal())
        if total > amount(allowed):
            together = (
                f"its {len(replicas)} replicas need {resource}={_text(total, requested)} together, it allows {allowed}"
            )
            return f"the quota {quota} is smaller than the job: {together}, so waiting does not help"
    return ""


def _requested_by(
    replica: Replica, refused: str, replicas: Sequence[Replica], resource: str, requested: str
) -> Decimal:
    """Return a replica's request: the refused pod's if both have the same role, else the one in the job's object."""
    if replica.role in {each.role for each in replicas if each.name == refused}:
        return amount(requested)
    return _of_template(replica.template)[resource]


def _of_template(template: Mapping[str, Any]) -> Mapping[str, Decimal]:
    """Return a pod's requests by the quota's resource names."""
    total = defaultdict(Decimal, dict.fromkeys(_PODS, Decimal(1)))
    for container in (template.get("spec") or {}).get("containers") or ():
        for name, size in _of_container(container):
            total[name] += amount(str(size))
    return total


def _of_container(container: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, size in limits.items():
        yield f"limits.{name}", size
    for name, size in {**limits, **requests}.items():
        yield f"requests.{name}", size
        yield name, size


def _amounts(text: str) -> dict[str, str]:
    return {name: size for name, _, size in (pair.partition("=") for pair in text.split(","))}


def _text(total: Decimal, like: str) -> str:
    """Format a sum in the unit of one of its parts."""
    unit = like.lstrip("0123456789.")
    return f"{(total / amount(f'1{unit}')).normalize():f}{unit}"
