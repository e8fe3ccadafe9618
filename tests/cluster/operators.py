"""Apply operators from their modules' own manifests to a booted cluster, and a storage class."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from cluster import binaries, images
from cluster.shell import ClusterFailed, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cluster.binaries import Family
    from cluster.boot import Cluster
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


def training_operator(cluster: Cluster) -> None:
    """Apply the training operator; PyTorchJobs can be created once its webhook responds."""
    home = copied(cluster, binaries.TRAINING_OPERATOR, OPERATOR_MODULE, "manifests")
    program = cluster.programs.folder(binaries.TRAINING_OPERATOR) / "training-operator.v1"
    apply(cluster, rendered(cluster, home, "manifests/overlays/standalone", PROBES), program)


def copied(cluster: Cluster, family: Family, module: str, folder: str) -> Path:
    """Return a folder in which a module's own folder, such as its manifests, has been copied."""
    home = cluster.layout.home / module.replace("/", "-")
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(binaries.module_folder(family, module) / folder, home / folder, copy_function=shutil.copyfile)
    return home


def rendered(cluster: Cluster, home: Path, resource: str, patch: Sequence[object]) -> str:
    """Return the manifests of a kustomization below `home`, with a patch of its only Deployment."""
    patches = [{"target": {"kind": "Deployment"}, "patch": json.dumps(patch)}]
    (home / "kustomization.yaml").write_text(json.dumps({"resources": [resource], "patches": patches}))
    return cluster.kubectl("kustomize", str(home))


def apply(cluster: Cluster, manifests: str, program: Path) -> None:
    """Apply rendered manifests; the image that their Deployment names is made from this program."""
    found = re.search(r"^\s*(?:- )?image: (\S+)$", manifests, re.MULTILINE)
    if found is None:
        raise ClusterFailed(f"the manifests for {program} name no image")
    cluster.images.ensure(images.controller(found[1], program))
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=manifests)


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
