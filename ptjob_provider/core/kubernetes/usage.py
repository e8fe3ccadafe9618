"""Compute capacity and usage of nodes and pods from their objects and from responses of the metrics API. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core.inspector import NodeUse, ReplicaUse
from ptjob_provider.core.kinds.pod_template import count_gpus, is_gpu
from ptjob_provider.core.kubernetes.pods import has_ended
from ptjob_provider.core.spec.pods import amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest

_ROLE = "node-role.kubernetes.io/"
_LATER = "9999"
"""Timestamp given to samples without one; it sorts after the start of every pod."""

N = TypeVar("N", int, float)

Measured = dict[tuple[str, str], dict[str, Any]]
"""Usage of pods: (namespace, name) → cores (`cpu`), bytes (`memory`) and the time of the sample (`at`)."""


def nodes_in_use(nodes: Iterable[Manifest], pods: Iterable[Manifest]) -> list[NodeUse]:
    """Return the capacity of each node and what its pods request, as the scheduler counts it."""
    pods_of: dict[str, list[Manifest]] = defaultdict(list)
    for pod in pods:
        if pod["spec"].get("nodeName") and not has_ended(pod):
            pods_of[pod["spec"]["nodeName"]].append(pod)
    return [_node(node, pods_of[node["metadata"]["name"]]) for node in nodes]


def replica_use(name: str, pod: Manifest | None, measured: Mapping[str, Any]) -> ReplicaUse:
    """Return the usage of one replica.

    Args:
        name: name of the replica.
        pod: its pod; None if it has none.
        measured: `cpu` and `memory`, as far as known.
    """
    if pod is None:
        return ReplicaUse(replica=name)
    phase = str(pod["status"].get("phase") or "")
    gpus = count_gpus(pod) if phase == "Running" else 0
    return ReplicaUse(replica=name, node=pod["spec"].get("nodeName") or "", phase=phase, gpus=gpus, **measured)


def figures_of(pod: Manifest, measured: Measured) -> dict[str, Any]:
    """Return `cpu` and `memory` of the pod as far as measured; ignores a sample of an earlier pod of the same name."""
    sample = measured.get((pod["metadata"]["namespace"], pod["metadata"]["name"]), {})
    if sample.get("at", "") < (pod["status"].get("startTime") or ""):
        return {}
    return {name: value for name, value in sample.items() if name != "at"}


def from_metrics(items: Iterable[Manifest]) -> Measured:
    """Return the usage of the pods in a response of metrics.k8s.io, without pods that have no values."""
    measured: Measured = {}
    for item in items:
        meta = item.get("metadata") or {}
        cpu, memory = _sum(item, "cpu", float), _sum(item, "memory", int) or None  # no process uses 0 bytes
        known = {name: value for name, value in {"cpu": cpu, "memory": memory}.items() if value is not None}
        if known and meta.get("namespace") and meta.get("name"):
            measured[meta["namespace"], meta["name"]] = {**known, "at": str(item.get("timestamp") or _LATER)}
    return measured


def _sum(item: Manifest, resource: str, number: type[N]) -> N | None:
    """Return the sum over a pod's containers; None if none reports a value."""
    uses = [each.get("usage") or {} for each in item.get("containers") or ()]
    values = [number(amount(use[resource])) for use in uses if resource in use]
    return sum(values, start=number()) if values else None


def _node(node: Manifest, pods: Sequence[Manifest]) -> NodeUse:
    allocatable = node["status"].get("allocatable") or {}
    return NodeUse(
        name=node["metadata"]["name"],
        address=_address(node),
        role=",".join(sorted(_roles(node))),
        status=_status(node),
        gpus=sum(int(str(count)) for name, count in allocatable.items() if is_gpu(name) and str(count).isdecimal()),
        gpus_taken=sum(map(count_gpus, pods)),
        cpu=float(amount(allocatable["cpu"])) if "cpu" in allocatable else None,
        cpu_taken=sum(_requested(pod, "cpu") for pod in pods),
        memory=int(amount(allocatable["memory"])) if "memory" in allocatable else None,
        memory_taken=int(sum(_requested(pod, "memory") for pod in pods)),
    )


def _roles(node: Manifest) -> Iterable[str]:
    return (name.removeprefix(_ROLE) for name in node["metadata"].get("labels") or () if name.startswith(_ROLE))


def _address(node: Manifest) -> str:
    addresses = node["status"].get("addresses") or ()
    return next((each["address"] for each in addresses if each["type"] == "InternalIP"), "")


def _status(node: Manifest) -> str:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
    ready = "ready" if conditions.get("Ready") == "True" else "notReady"
    return f"{ready},unschedulable" if node["spec"].get("unschedulable") else ready


def _requested(pod: Manifest, resource: str) -> float:
    """Return the pod's request as the scheduler counts it: all containers, or the largest init container if greater."""
    containers = sum(_request_of(each, resource) for each in pod["spec"].get("containers") or ())
    largest_init = max((_request_of(each, resource) for each in pod["spec"].get("initContainers") or ()), default=0.0)
    return max(containers, largest_init)


def _request_of(container: Mapping[str, Any], resource: str) -> float:
    requests = (container.get("resources") or {}).get("requests") or {}
    return float(amount(requests[resource])) if resource in requests else 0.0
