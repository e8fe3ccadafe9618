"""Jobs on a node without a kubelet: one created for a story, and deleted afterwards, or the cluster's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cluster.shell import until
from kubernetes_backend.failure import TRAINS, Act, Failure, shell, worker
from kubernetes_backend.starts import STANDS_STILL, after
from kubernetes_backend.world import JOB

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from cluster.kubectl import Kubectl
    from kubernetes_backend.world import World

NODE = "silent"
TAINT = {"key": "maintenance", "value": "now", "effect": "NoExecute"}

LEAVES_SOON: list[dict[str, Any]] = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}
    for key in ("unreachable", "not-ready")
]
"""Tolerations of a pod that has to leave a lost node after three seconds; by default it is five minutes."""


def lose_node(cluster: Cluster, namespace: str) -> None:
    """Stop the kubelet, and start it again once all running pods of the namespace have to leave the lost node.

    The controller manager doubts a node after 50 seconds. The cluster must be one that a test may harm. Its operators
    tolerate a lost node for five minutes.
    """

    def have_to_leave() -> bool:
        pods = cluster.kubectl.list("pods", namespace=namespace)
        running = [pod["metadata"] for pod in pods if pod["status"].get("phase") == "Running"]
        return bool(running) and all("deletionTimestamp" in meta for meta in running)

    cluster.kill("kubelet")
    try:
        until("the pods to have to leave", have_to_leave, timeout=240)
    finally:
        cluster.start("kubelet")
        cluster.wait_for("kubelet")


def _make_node(kubectl: Kubectl, _: str) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {"unschedulable": True}}
    kubectl.apply(node)


def _remove_node(kubectl: Kubectl, namespace: str) -> None:
    kubectl("delete", "node", NODE, "--ignore-not-found", "--wait=false")
    force = ("--grace-period=0", "--force", "--wait=false", "--ignore-not-found")
    kubectl("delete", "pod", f"{JOB}-worker-0", "--namespace", namespace, *force)


def _lose_node(kubectl: Kubectl, _: str) -> None:
    kubectl("delete", "node", NODE, "--wait=false")


def _taint(kubectl: Kubectl, _: str) -> None:
    change = {"spec": {"unschedulable": True, "taints": [TAINT]}}
    kubectl("patch", "node", NODE, "--type=merge", "--patch", json.dumps(change))


def _master_runs(world: World) -> bool:
    return world.runs("master-0") and world.seconds > 5


ON_A_SILENT_NODE: dict[str, Any] = {
    "ready": _make_node,
    "undo": _remove_node,
    "crowd": "nodes",
    "pod": {"nodeName": NODE},
}

NODES: dict[str, Failure] = {
    "pod-creating-for-long": worker(
        "The worker's node does not answer: its pod is placed and nothing more is heard of it.",
        shell(TRAINS),
        limits=STANDS_STILL,
        **ON_A_SILENT_NODE,
        **after(30),
    ),
    "pod-node-lost": worker(
        "The worker's node is gone for good.",
        shell(TRAINS),
        acts=(Act(when=_master_runs, do=_lose_node),),
        **ON_A_SILENT_NODE,
    ),
    "pod-tainted": worker(
        "The worker's node is tainted, so that its pods have to leave; it does not answer, so that they cannot.",
        shell(TRAINS),
        acts=(Act(when=_master_runs, do=_taint),),
        limits=STANDS_STILL,
        **after(40),
        **ON_A_SILENT_NODE,
    ),
}
