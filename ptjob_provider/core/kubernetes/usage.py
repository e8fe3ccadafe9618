"""Parse capacity and usage of nodes and pods from their objects and the metrics API. Pure."""

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
"""Timestamp of samples without one: later than every pod's start."""

N = TypeVar("N", int, float)

Measured = dict[tuple[str, str], dict[str, Any]]
"""Cores (`cpu`) and bytes (`memory`) of pods by namespace and name, and the time of the sample (`at`)."""


def nodes_in_use(nodes: Iterable[Manifest], pods: Iterable[Manifest]) -> list[NodeUse]:
    """Return each node with the requests of its pods, as the scheduler counts them."""
    there: dict[str, list[Manifest]] = defaultdict(list)
    for pod in pods:
        if pod["spec"].get("nodeName") and not has_ended(pod):
            there[pod["spec"]["nodeName"]].append(pod)
    return [_node(node, there[node["metadata"]["name"]]) for node in nodes]


def replica_use(name: str, pod: Manifest | None, measured: Mapping[str, Any]) -> ReplicaUse:
    """Return the usage of one replica; `measured` holds `cpu` and `memory` as far as known."""
    if pod is None:
        return ReplicaUse(replica=name)
    phase = str(pod["status"].get("phase") or "")
    gpus = count_gpus(pod) if phase == "Running" else 0
    return ReplicaUse(replica=name, node=pod["spec"].get("nodeName") or "", phase=phase, gpus=gpus, **measured)


def figures_of(pod: Manifest, measured: Measured) -> dict[str, Any]:
    """Return `cpu` and `memory` as far as measured, without samples of an earlier pod of the same name."""
    sample = measured.get((pod["metadata"]["namespace"], pod["metadata"]["name"]), {})
    if sample.get("at", "") < (pod["status"].get("startTime") or ""):
        return {}
    return {name: value for name, value in sample.items() if name != "at"}


def from_metrics(items: Iterable[Manifest]) -> Measured:
    """Return the pod usage in a response of metrics.k8s.io; pods without data are left out."""
    measured: Measured = {}
    for item in items:
        meta = item.get("metadata") or {}
        uses = {"cpu": _sum(item, "cpu", float), "memory": _sum(item, "memory", int) or None}  # no process uses 0 bytes
        known = {name: value for name, value in uses.items() if value is not None}
        if known and meta.get("namespace") and meta.get("name"):
            measured[meta["namespace"], meta["name"]] = {**known, "at": str(item.get("timestamp") or _LATER)}
    return measured


def _sum(item: Manifest, resource: str, number: type[N]) -> N | None:
    """Return the sum over a pod's containers; None if none reports a value."""
    uses = [each.get("usage") or {} for each in item.get("containers") or ()]
    values = [number(amount(use[resource])) for use in uses if resource in use]
    return sum(values, start=number()) if values else None


def _node(node: Manifest, pods: Sequence[Manifest]) -> NodeUse:
    has = node["status"].get("allocatable") or {}
    return NodeUse(
        name=node["metadata"]["name"],
        address=_address(node),
        role=",".join(sorted(_roles(node))),
        status=_status(node),
        gpus=sum(int(str(count)) for name, count in has.items() if is_gpu(name) and str(count).isdecimal()),
        gpus_taken=sum(map(count_gpus, pods)),
        cpu=float(amount(has["cpu"])) if "cpu" in has else None,
        cpu_taken=sum(_requested(pod, "cpu") for pod in pods),
        memory=int(amount(has["memory"])) if "memory" in has else None,
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
    """Return the scheduler's request: the sum of the containers, or the greatest init container's."""
    running = sum(_of(container, resource) for container in pod["spec"].get("containers") or ())
    first = max((_of(container, resource) for container in pod["spec"].get("initContainers") or ()), default=0.0)
    return max(running, first)


def _of(container: Mapping[str, Any], resource: str) -> float:
    requests = (container.get("resources") or {}).get("requests") or {}
    return float(amount(requests[resource])) if resource in requests else 0.0
