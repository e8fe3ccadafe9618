"""Install Kueue on a running cluster when a test needs it, from its module's own manifests.

The aggregated API for the visibility of queues on demand is left out, because no test uses it.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import yaml

from cluster import binaries, gpu, images
from cluster.shell import ClusterFailed, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cluster.boot import Cluster

MODULE = "sigs.k8s.io/kueue"
NAMESPACE = "kueue-system"
QUEUE = "team"
FLAVOR_LABELS = {"kubernetes.io/os": "linux"}
"""Labels of the flavour's nodes: Kueue adds them to the node selector of the pods that it admits."""

_DEPLOYMENT = "controller-manager"
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
    manifests = cluster.layout.home / "kueue"
    shutil.rmtree(manifests, ignore_errors=True)
    source = binaries.module_folder(binaries.KUEUE, MODULE) / "config"
    shutil.copytree(source, manifests / "config", copy_function=shutil.copyfile)
    _leave_out(manifests / "config" / "default" / "kustomization.yaml")
    kustomization = {
        "resources": ["config/default"],
        "patches": [{"target": {"kind": "Deployment", "name": f"kueue-{_DEPLOYMENT}"}, "patch": json.dumps(_PATCH)}],
    }
    (manifests / "kustomization.yaml").write_text(json.dumps(kustomization))
    rendered = cluster.kubectl("kustomize", str(manifests))
    program = cluster.programs.folder(binaries.KUEUE) / "kueue"
    cluster.images.ensure(images.controller(_image(rendered), program))
    cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=rendered, timeout=120)
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


def _image(rendered: str) -> str:
    found = re.search(r"^\s*image: (\S+/kueue:\S+)$", rendered, re.MULTILINE)
    if found is None:
        raise ClusterFailed("Kueue's manifests name no image of it")
    return found[1]
