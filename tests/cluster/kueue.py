"""Kueue on a cluster that is up: built and applied only where a test asks for it, from its module's own manifests.

Left out is what answers on demand how long a queue is: an aggregated API, which nobody here asks.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

from cluster import binaries, images
from cluster.shell import ClusterFailed, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.boot import Cluster

MODULE = "sigs.k8s.io/kueue"
NAMESPACE = "kueue-system"
QUEUE = "team"
_DEPLOYMENT = "controller-manager"
_LEFT_OUT = ("../components/visibility", "manager_visibility_patch.yaml", "role_binding_visibility_transformer.yaml")
_MANAGER = "/spec/template/spec/containers/0"
_PATCH = [
    {"op": "replace", "path": f"{_MANAGER}/imagePullPolicy", "value": "IfNotPresent"},
    {"op": "replace", "path": f"{_MANAGER}/resources", "value": {}},
    {"op": "add", "path": f"{_MANAGER}/args/-", "value": "--feature-gates=VisibilityOnDemand=false"},
    {"op": "replace", "path": f"{_MANAGER}/readinessProbe/initialDelaySeconds", "value": 1},
    {"op": "replace", "path": f"{_MANAGER}/readinessProbe/periodSeconds", "value": 1},
    {"op": "add", "path": "/spec/template/spec/securityContext/runAsUser", "value": 65532},
]
"""It stays in the cluster, where two replicas that ask for a core each need both of the node: it asks for none."""


def ensure_kueue(cluster: Cluster, tell: Callable[[str], None]) -> None:
    """Have Kueue in the cluster, with one flavour of resources that every node has.

    Raises:
        ClusterFailed: it cannot be built, or does not come up.
    """
    cluster.programs.build(tell, [binaries.KUEUE])
    tell("applying Kueue")
    manifests = cluster.layout.home / "kueue"
    shutil.rmtree(manifests, ignore_errors=True)
    source = binaries.module_folder(binaries.KUEUE, MODULE) / "config"
    shutil.copytree(source, manifests / "config", copy_function=shutil.copyfile)
    default = manifests / "config" / "default" / "kustomization.yaml"
    lines = [line for line in default.read_text().splitlines() if not any(part in line for part in _LEFT_OUT)]
    default.write_text("\n".join(line for line in lines if line != "transformers:") + "\n")
    kustomization = {
        "resources": ["config/default"],
        "patches": [{"target": {"kind": "Deployment", "name": f"kueue-{_DEPLOYMENT}"}, "patch": json.dumps(_PATCH)}],
    }
    (manifests / "kustomization.yaml").write_text(json.dumps(kustomization))
    rendered = cluster.kubectl("kustomize", str(manifests))
    program = cluster.programs.folder(binaries.KUEUE) / "kueue"
    cluster.images.ensure(images.controller(_image(rendered), program))
    cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=rendered, timeout=120)
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "default"}}
    wait_until("Kueue's webhook", lambda: cluster.kubectl.apply(flavor) or True, timeout=300)


def ensure_queue(cluster: Cluster, namespace: str, *, cpu: str) -> None:
    """Have the queue QUEUE in a namespace, which lets jobs run that ask for so many cores together."""
    quota = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "8Gi"}]
    flavors = [{"name": "default", "resources": quota}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]
    cluster.kubectl.apply(
        _object("ClusterQueue", namespace, {"namespaceSelector": {}, "resourceGroups": groups}),
        _object("LocalQueue", QUEUE, {"clusterQueue": namespace}, namespace=namespace),
    )


def _object(kind: str, name: str, spec: dict[str, Any], **meta: str) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def _image(rendered: str) -> str:
    found = re.search(r"^\s*image: (\S+/kueue:\S+)$", rendered, re.MULTILINE)
    if found is None:
        raise ClusterFailed("Kueue's manifests name no image of it")
    return found[1]
