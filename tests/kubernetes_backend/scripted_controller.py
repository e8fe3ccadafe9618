"""A stand-in for a controller that is not available: a test's script creates a job's pods and reports on them.

A real API server serves its kind, and its pods are real.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from cluster.shell import wait_until
from cluster_world import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.boot import Cluster
    from ptjob_provider.core.identity import JobRef, Manifest

ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def crd(kind: str, api_version: str, *, spec: Mapping[str, Any]) -> Manifest:
    """Return the definition of a namespaced kind with this schema for its spec."""
    group, _, version = api_version.partition("/")
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "properties": {"spec": spec, "status": ANYTHING}}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def serve(cluster: Cluster, definition: Manifest) -> Cluster:
    """Install a kind, and return the cluster."""
    plural = definition["spec"]["names"]["plural"]
    cluster.kubectl.apply(definition)
    wait_until("the kind", lambda: cluster.kubectl("get", plural, "--all-namespaces") or True, timeout=60)
    return cluster


class ScriptedController:
    """One job's controller: what all stand-ins have in common."""

    KIND: ClassVar[str]
    """The job's kind."""

    LABEL: ClassVar[str]
    """The label of the job's pods with the job's name."""

    def __init__(self, cluster: Cluster, ref: JobRef) -> None:
        self._kubectl = cluster.kubectl
        self._ref = ref
        self._there = ("--namespace", ref.namespace)
        self._its_pods = ("pods", *self._there, "--selector", f"{self.LABEL}={ref.name}")

    def job(self) -> Manifest:
        return self._kubectl.get(self.KIND.lower(), self._ref.name, namespace=self._ref.namespace)

    def make_pod(self, job: Manifest, name: str, labels: Mapping[str, str], spec: Manifest) -> None:
        """Create a pod that the job owns and that its label selects."""
        meta = job["metadata"]
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
        owners = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        metadata = {"name": name, "namespace": meta["namespace"], "labels": {**labels, self.LABEL: meta["name"]}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "ownerReferences": owners}, "spec": spec}
        self._kubectl.apply(pod)

    def pods(self) -> list[Manifest]:
        return list(json.loads(self._kubectl("get", *self._its_pods, "--output", "json"))["items"])

    def write(self, status: Mapping[str, Any]) -> None:
        words = ("patch", self.KIND.lower(), self._ref.name, *self._there, "--subresource=status", "--type=merge")
        self._kubectl(*words, "--patch", json.dumps({"status": status}))

    def wait_for(self, is_end: Callable[[list[str]], bool]) -> None:
        """Wait until the phases of the job's pods are those of an end."""

        def ended() -> bool:
            return is_end([pod["status"].get("phase") for pod in self.pods()])

        wait_until("the pods' end", ended, timeout=PATIENCE)
