"""Parse capacity and usage of nodes and pods from their objects and the metrics API. Pure."""

from __future__ import annotations

import codecs
import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core.inspector import NodeUse, ReplicaUse
from ptjob_provider.core.kinds.pod_template import count_gpus, is_gpu
from ptjob_provider.core.spec.pods import amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest

_ROLE = "node-role.kubernetes.io/"
_ENDED = {"Succeeded", "Failed"}
_LATER = "9999"
"""Timestamp of samples without one: later than every pod's start."""

_JSON = json.JSONDecoder()
_BETWEEN = re.compile(r"\A[\s,]+")

N = TypeVar("N", int, float)

Measured = dict[tuple[str, str], dict[str, Any]]
"""Cores (`cpu`) and bytes (`memory`) of pods by namespace and name, and the time of the sample (`at`)."""


def nodes_in_use(nodes: Iterable[Manifest], pods: Iterable[Manifest]) -> list[NodeUse]:
    """Return each node with the requests of its pods, as the scheduler counts them."""
    there: dict[str, list[Manifest]] = defaultdict(list)
    for pod in pods:
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in _ENDED:
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
    found = measured.get((pod["metadata"]["namespace"], pod["metadata"]["name"]), {})
    if found.get("at", "") < (pod["status"].get("startTime") or ""):
        return {}
    return {name: value for name, value in found.items() if name != "at"}


def from_metrics(items: Iterable[Manifest]) -> Measured:
    """Return the pod usage in a response of metrics.k8s.io; pods without data are left out."""
    found: Measured = {}
    for item in items:
        meta = item.get("metadata") or {}
        uses = {"cpu": _sum(item, "cpu", float), "memory": _sum(item, "memory", int) or None}  # no process uses 0 bytes
        known = {name: value for name, value in uses.items() if value is not None}
        if known and meta.get("namespace") and meta.get("name"):
            found[meta["namespace"], meta["name"]] = {**known, "at": str(item.get("timestamp") or _LATER)}
    return found


class ListReader:
    """Parses the objects of a JSON list incrementally: a list of megabytes does not block the loop.

    Args:
        field: the list's field in the response.
    """

    def __init__(self, field: str) -> None:
        self._begin = re.compile(rf'"{field}"\s*:\s*\[')
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._has_begun = self._is_over = False

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """Yield the objects that this chunk completes."""
        self._text += self._decoder.decode(chunk)
        if not self._has_begun:
            self._has_begun = self._skip(self._begin)
        while self._has_begun and not self._is_over:
            self._skip(_BETWEEN)
            try:
                found, end = _JSON.raw_decode(self._text)
            except ValueError:  # incomplete, or the last one
                self._is_over = self._text.startswith("]")
                return
            self._text = self._text[end:]
            yield found

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.search(self._text)
        if found is not None:
            self._text = self._text[found.end() :]
        return found is not None


def _sum(item: Manifest, resource: str, number: type[N]) -> N | None:
    """Return the sum over a pod's containers; None if none reports a value."""
    uses = [each.get("usage") or {} for each in item.get("containers") or ()]
    told = [number(amount(use[resource])) for use in uses if resource in use]
    return sum(told, start=number()) if told else None


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
    """Return the scheduler's request: the sum of the containers, or the greatest init container's."""
    running = sum(_of(container, resource) for container in pod["spec"].get("containers") or ())
    first = max((_of(container, resource) for container in pod["spec"].get("initContainers") or ()), default=0.0)
    return max(running, first)


def _of(container: Mapping[str, Any], resource: str) -> float:
    asked = (container.get("resources") or {}).get("requests") or {}
    return float(amount(asked[resource])) if resource in asked else 0.0
