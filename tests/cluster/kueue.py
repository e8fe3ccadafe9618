"""Install Kueue on a running cluster when a test needs it, from its module's own manifests.

The aggregated API for the visibility of queues on demand is left out, because no test uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from cluster import binaries, gpu, operators
from cluster.shell import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cluster.boot import Cluster

MODULE = "sigs.k8s.io/kueue"
NAMESPACE = "kueue-system"
QUEUE = "team"
FLAVOR_LABELS = {"kubernetes.io/os": "linux"}
"""Labels of the flavour's nodes: Kueue adds them to the node selector of the pods that it admits."""

_API = "kueue.x-k8s.io/v1beta2"
_LEFT_OUT = "visibility"
_MANAGER = "/spec/template/spec/containers/0"
_PATCH = [
    {"op": "replace", "path": f"{_MANAGER}/imagePullPolicy", "value": "IfNotPresent"},
    {"op": "replace", "path": f"{_MANAGER}/resources", "value": {}},
    {"op": "add", "path": f"{_MANAGER}/args/-", "value": "--feature-gates=VisibilityOnDemand=false"},
    {"op": "replace", "path": f"{_MANAGER}/readinessProbe/initialDelaySeconds", "value": 1},
    {"op": "replace", "path": f"{_MANAGER}/readinessProbe/periodSeconds", "value": 1},
    {"op": "add", "path": "/spec/template/spec/securityContext/runAsUser", "value": 65532},
]
"""Kueue stays in the cluster, so it requests no CPU: two replicas of a test's job may need both cores of the node."""


def ensure_kueue(cluster: Cluster, tell: Callable[[str], None]) -> None:
    """Install Kueue in the cluster, with one resource flavour that matches every node.

    Raises:
        ClusterFailed: the build failed, or Kueue did not start in time.
    """
    cluster.programs.build(tell, [binaries.KUEUE])
    tell("applying Kueue")
    home = operators.copied(cluster, binaries.KUEUE, MODULE, "config")
    _leave_out(home / "config" / "default" / "kustomization.yaml")
    program = cluster.programs.folder(binaries.KUEUE) / "kueue"
    operators.apply(cluster, operators.rendered(cluster, home, "config/default", _PATCH), program)
    flavor = _object("ResourceFlavor", "default", {"nodeLabels": FLAVOR_LABELS})
    wait_until("Kueue's webhook", lambda: cluster.kubectl.apply(flavor) or True, timeout=300)


def ensure_queue(cluster: Cluster, namespace: str, *, cpu: str, gpus: int) -> None:
    """Create the queue QUEUE in a namespace; it admits jobs up to this total of CPU cores and GPUs."""
    quota = {"cpu": cpu, "memory": "8Gi", gpu.RESOURCE: gpus}
    resources = [{"name": name, "nominalQuota": share} for name, share in quota.items()]
    groups = [{"coveredResources": [*quota], "flavors": [{"name": "default", "resources": resources}]}]
    cluster.kubectl.apply(
        _object("ClusterQueue", namespace, {"namespaceSelector": {}, "resourceGroups": groups}),
        _object("LocalQueue", QUEUE, {"clusterQueue": namespace}, namespace=namespace),
    )


def _object(kind: str, name: str, spec: dict[str, Any], **meta: str) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def _leave_out(kustomization: Path) -> None:
    """Remove all entries that belong to the part that is left out."""
    found = yaml.safe_load(kustomization.read_text())
    kept = {
        name: [each for each in part if _LEFT_OUT not in str(each)] if isinstance(part, list) else part
        for name, part in found.items()
    }
    kustomization.write_text(yaml.safe_dump({name: part for name, part in kept.items() if part}))
