"""Apply a storage class, and the training operator from its module's own manifests, to a booted cluster."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from cluster import binaries, images
from cluster.shell import ClusterFailed, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.binaries import Binaries
    from cluster.images import ImageStore
    from cluster.kubectl import Kubectl

OPERATOR_MODULE = "github.com/kubeflow/training-operator"
OPERATOR_NAMESPACE = "kubeflow"
OPERATOR = "training-operator"
STORAGE_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "kubernetes.io/host-path",
}
PROBES = [
    {"op": "replace", "path": "/spec/template/spec/containers/0/readinessProbe/initialDelaySeconds", "value": 1},
    {"op": "replace", "path": "/spec/template/spec/containers/0/readinessProbe/periodSeconds", "value": 1},
    {"op": "add", "path": "/spec/template/spec/containers/0/readinessProbe/timeoutSeconds", "value": 20},
    {"op": "add", "path": "/spec/template/spec/containers/0/readinessProbe/failureThreshold", "value": 45},
    {"op": "remove", "path": "/spec/template/spec/containers/0/livenessProbe"},
]
"""Probe readiness each second, tolerate a machine that stands still, and never restart an operator that is slow."""


def storage(kubectl: Kubectl) -> None:
    """Create the default storage class, so that claims are bound automatically."""
    kubectl.apply(STORAGE_CLASS)


def training_operator(kubectl: Kubectl, store: ImageStore, programs: Binaries, home: Path) -> None:
    """Apply the training operator; PyTorchJobs can be created once its webhook responds."""
    manifests = home / OPERATOR
    shutil.rmtree(manifests, ignore_errors=True)
    source = binaries.module_folder(binaries.TRAINING_OPERATOR, OPERATOR_MODULE) / "manifests"
    shutil.copytree(source, manifests / "manifests", copy_function=shutil.copyfile)
    target = {"kind": "Deployment", "name": OPERATOR}
    kustomization = {
        "resources": ["manifests/overlays/standalone"],
        "patches": [{"target": target, "patch": json.dumps(PROBES)}],
    }
    (manifests / "kustomization.yaml").write_text(json.dumps(kustomization))
    rendered = kubectl("kustomize", str(manifests))
    program = programs.folder(binaries.TRAINING_OPERATOR) / "training-operator.v1"
    store.ensure(images.controller(_image(rendered), program))
    kubectl("apply", "--server-side", "--filename", "-", stdin=rendered)


def wait_for_training_operator(kubectl: Kubectl) -> None:
    """Return once the operator runs and its webhook responds.

    Raises:
        ClusterFailed: the webhook does not respond in time.
    """
    job = json.dumps(_PROBE_JOB)
    create = ("create", "--dry-run=server", "--filename", "-")
    wait_until("the training operator's webhook", lambda: kubectl(*create, stdin=job), timeout=300)


def restrict_init_containers(kubectl: Kubectl) -> None:
    """Let the operator's init containers pass pod security `restricted`, which otherwise refuses the workers.

    As an administrator would, this adds a template in a config map, which the operator reads from /etc/config.
    """
    metadata = {"name": f"{OPERATOR}-init", "namespace": OPERATOR_NAMESPACE}
    template = {"initContainer.yaml": json.dumps([_RESTRICTED_INIT])}
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": template})
    volume = {"name": "init", "configMap": {"name": metadata["name"]}}
    container = {"name": OPERATOR, "volumeMounts": [{"name": "init", "mountPath": "/etc/config"}]}
    change = {"spec": {"template": {"spec": {"volumes": [volume], "containers": [container]}}}}
    there = ("--namespace", OPERATOR_NAMESPACE)
    kubectl("patch", "deployment", OPERATOR, *there, "--patch", json.dumps(change))
    kubectl("rollout", "status", f"deployment/{OPERATOR}", *there, "--timeout=300s", timeout=310)
    wait_for_training_operator(kubectl)


def _image(rendered: str) -> str:
    found = re.search(rf"^\s*image: (\S*/{OPERATOR}\S*)$", rendered, re.MULTILINE)
    if found is None:
        raise ClusterFailed("the training operator's manifests name no image of it")
    return found[1]


_CONTAINER = {"name": "pytorch", "image": images.INIT_IMAGE}
_PROBE_JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": {"containers": [_CONTAINER]}}}}},
}
_RESTRICTED_INIT = {
    "name": "init-pytorch",
    "image": "{{.InitContainerImage}}",
    "imagePullPolicy": "IfNotPresent",
    "command": ["sh", "-c", "until nslookup {{.MasterAddr}}; do echo waiting for master; sleep 1; done"],
    "resources": {"requests": {"cpu": "50m", "memory": "10Mi"}, "limits": {"cpu": "100m", "memory": "20Mi"}},
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
