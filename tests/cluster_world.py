"""The Kubernetes back-end under test: a namespace of the tests' cluster, and the claims that a manifest needs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kubernetes import ClusterConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cluster.boot import Cluster

GRACE = 2
"""Seconds between SIGTERM and SIGKILL: a program with PID 1 ignores SIGTERM, and the default is 30 seconds."""

PATIENCE = 600.0

RESTRICTED: dict[str, Any] = {
    "security_context": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "container_security_context": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
"""Fields of a job whose pods pass PodSecurity `restricted`."""


def config_of(kubeconfig: Path) -> ClusterConfig:
    """Return the client configuration for the tests' cluster."""
    return ClusterConfig(kube_config_path=str(kubeconfig))


class Tenant:
    """A namespace of the cluster, with claims for its jobs."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace
        self._claims: set[str] = set()

    def prepare(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create the claims that the manifest mounts; return the manifest with a short grace period."""
        ready = copy.deepcopy(manifest)
        for role in ready["spec"]["pytorchReplicaSpecs"].values():
            pod = role["template"]["spec"]
            pod.setdefault("terminationGracePeriodSeconds", GRACE)
            for volume in pod.get("volumes") or ():
                if "persistentVolumeClaim" in volume:
                    self.claim(volume["persistentVolumeClaim"]["claimName"])
        return ready

    def claim(self, name: str, *, mode: str = "ReadWriteOnce") -> None:
        if name in self._claims:
            return
        self._cluster.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
            }
        )
        self._claims.add(name)

    def annotate(self, name: str, notes: Mapping[str, str | None]) -> None:
        """Set annotations of a claim, creating the claim if necessary; None removes an annotation."""
        self.claim(name)
        words = [f"{key}-" if value is None else f"{key}={value}" for key, value in notes.items()]
        self._cluster.kubectl("annotate", "--overwrite", "pvc", name, "--namespace", self.namespace, *words)
