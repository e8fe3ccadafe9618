"""A stand-in for a controller that cannot be had: a test's script makes a job's pods and tells of them.

Its kind is served by a real API server, and its pods are real ones.
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


def crd(kind: str, api_version: str, *, spec: Mapping[str, Any], status: Mapping[str, Any] = ANYTHING) -> Manifest:
    """Return the definition of a namespaced kind whose spec and status have these schemas."""
    group, _, version = api_version.partition("/")
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
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
    """Have a kind served, and return the cluster."""
    plural = definition["spec"]["names"]["plural"]
    cluster.kubectl.apply(definition)
    wait_until("the kind", lambda: cluster.kubectl("get", plural, "--all-namespaces") or True, timeout=60)
    return cluster


class ScriptedController:
    """One job's controller, as far as all stand-ins are alike."""

    KIND: ClassVar[str]
    """Of the job."""

    LABEL: ClassVar[str]
    """On the job's pods, with its name."""

    def __init__(self, cluster: Cluster, ref: JobRef) -> None:
        self._kubectl = cluster.kubectl
        self._ref = ref
        self._there = ("--namespace", ref.namespace)
        self._its_pods = ("pods", *self._there, "--selector", f"{self.LABEL}={ref.name}")

    def job(self) -> Manifest:
        """Return the job's object."""
        return self._kubectl.get(self.KIND.lower(), self._ref.name, namespace=self._ref.namespace)

    def make_pod(self, job: Manifest, name: str, labels: Mapping[str, str], spec: Manifest) -> None:
        """Make a pod that the job owns, and that is found by its label."""
        meta = job["metadata"]
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
        owners = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        told = {"name": name, "namespace": meta["namespace"], "labels": {**labels, self.LABEL: meta["name"]}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**told, "ownerReferences": owners}, "spec": spec}
        self._kubectl.apply(pod)

    def pods(self) -> list[Manifest]:
        """Return the job's pods."""
        return list(json.loads(self._kubectl("get", *self._its_pods, "--output", "json"))["items"])

    def delete_pods(self) -> None:
        """Delete the job's pods."""
        self._kubectl("delete", *self._its_pods)

    def write(self, status: Mapping[str, Any]) -> None:
        """Write the job's status."""
        words = ("patch", self.KIND.lower(), self._ref.name, *self._there, "--subresource=status", "--type=merge")
        self._kubectl(*words, "--patch", json.dumps({"status": status}))

    def wait_for(self, is_end: Callable[[list[str]], bool]) -> None:
        """Return when the phases of the job's pods are the end."""

        def ended() -> bool:
            return is_end([pod["status"].get("phase") for pod in self.pods()])

        wait_until("the pods' end", ended, timeout=PATIENCE)
