"""What nodes have and pods take, read from their objects and from what kubelets measure. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds.podtemplate import count_gpus, is_gpu
from ptjob_provider.core.site import NodeUse, ReplicaUse
from ptjob_provider.core.spec.resources import amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest

_ROLE = "node-role.kubernetes.io/"
_ENDED = {"Succeeded", "Failed"}
_NANO = 1e9


def nodes_in_use(nodes: Iterable[Manifest], pods: Iterable[Manifest]) -> list[NodeUse]:
    """Return each node with what the pods on it have asked for, as the scheduler counts."""
    there: dict[str, list[Manifest]] = defaultdict(list)
    for pod in pods:
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in _ENDED:
            there[pod["spec"]["nodeName"]].append(pod)
    return [_node(node, there[node["metadata"]["name"]]) for node in nodes]


def replica_use(name: str, pod: Manifest | None, measured: Mapping[str, Any]) -> ReplicaUse:
    """Return what one replica uses; `measured` are ReplicaUse's own fields, as far as they are known."""
    if pod is None:
        return ReplicaUse(replica=name)
    phase = str(pod["status"].get("phase") or "")
    gpus = count_gpus(pod) if phase == "Running" else 0
    return ReplicaUse(replica=name, node=pod["spec"].get("nodeName") or "", phase=phase, gpus=gpus, **measured)


def from_metrics(items: Iterable[Manifest]) -> dict[str, dict[str, Any]]:
    """Return what metrics.k8s.io says of each pod: cores and bytes."""
    return {
        item["metadata"]["name"]: {
            "cpu": sum(float(amount(each["usage"]["cpu"])) for each in item["containers"]),
            "memory": sum(int(amount(each["usage"]["memory"])) for each in item["containers"]),
        }
        for item in items
    }


def from_summary(summary: Mapping[str, Any], namespace: str) -> dict[str, dict[str, Any]]:
    """Return what a kubelet says of each pod of the namespace on its node."""
    found = {}
    for pod in summary.get("pods") or ():
        if pod["podRef"]["namespace"] == namespace:
            nano = (pod.get("cpu") or {}).get("usageNanoCores")
            network = pod.get("network") or {}
            found[pod["podRef"]["name"]] = {
                "cpu": None if nano is None else nano / _NANO,
                "memory": (pod.get("memory") or {}).get("workingSetBytes"),
                "received": network.get("rxBytes"),
                "sent": network.get("txBytes"),
                "disk": (pod.get("ephemeral-storage") or {}).get("usedBytes"),
            }
    return found


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
        cpu_taken=sum(_asked(pod, "cpu") for pod in pods),
        memory=int(amount(has["memory"])) if "memory" in has else None,
        memory_taken=int(sum(_asked(pod, "memory") for pod in pods)),
    )


def _roles(node: Manifest) -> Iterable[str]:
    return (name.removeprefix(_ROLE) for name in node["metadata"].get("labels") or () if name.startswith(_ROLE))


def _address(node: Manifest) -> str:
    found = (each["address"] for each in node["status"].get("addresses") or () if each["type"] == "InternalIP")
    return next(found, "")


def _status(node: Manifest) -> str:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
    ready = "ready" if conditions.get("Ready") == "True" else "notReady"
    return f"{ready},unschedulable" if node["spec"].get("unschedulable") else ready


def _asked(pod: Manifest, resource: str) -> float:
    """Return what the scheduler counts: all containers together, or the init container that asks for most."""
    running = sum(_of(container, resource) for container in pod["spec"].get("containers") or ())
    first = max((_of(container, resource) for container in pod["spec"].get("initContainers") or ()), default=0.0)
    return max(running, first)


def _of(container: Mapping[str, Any], resource: str) -> float:
    asked = (container.get("resources") or {}).get("requests") or {}
    return float(amount(asked[resource])) if resource in asked else 0.0
