"""T9k's platform as far as it is public: its CRD, and a scripted stand-in for its controller, which is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cluster.shell import wait_until
from cluster_world import PATIENCE
from kubernetes_backend.t9k_schema import PHASES, SPEC, STATUS

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.identity import JobRef, Manifest

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "pytorchtrainingjobs.batch.tensorstack.dev"},
    "spec": {
        "group": "batch.tensorstack.dev",
        "scope": "Namespaced",
        "names": {"kind": "PyTorchTrainingJob", "plural": "pytorchtrainingjobs", "singular": "pytorchtrainingjob"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
            }
        ],
    },
}


def serve(cluster: Cluster) -> Cluster:
    """Have the kind served, and return the cluster."""
    cluster.kubectl.apply(CRD)
    wait_until(
        "the kind", lambda: cluster.kubectl("get", "pytorchtrainingjobs", "--all-namespaces") or True, timeout=60
    )
    return cluster


class ScriptedController:
    """A stand-in for T9k's: makes a job's pods with the names and the label that are documented, and tells of them."""

    def __init__(self, cluster: Cluster, ref: JobRef) -> None:
        self._kubectl = cluster.kubectl
        self._ref = ref
        self._there = ("--namespace", ref.namespace)
        self._told: dict[str, Manifest] = {}

    def make_pods(self) -> None:
        """Make the pods of all roles, owned by the job."""
        job = self._kubectl.get("pytorchtrainingjob", self._ref.name, namespace=self._ref.namespace)
        for role in job["spec"]["replicaSpecs"]:
            for index in range(role["replicas"]):
                self._kubectl.apply(self._pod(job, role, index))
        self.tell("Running")

    def tell(self, phase: str, *conditions: tuple[str, str], restarts: int = 0) -> None:
        """Write the job's status: its phase, the conditions that are true, and its replicas, deleted ones as well."""
        instant = "2026-11-22T00:00:00Z"
        told = [
            {"type": kind, "status": "True", "reason": reason, "message": reason, "lastTransitionTime": instant}
            for kind, reason in conditions
        ]
        change = json.dumps({"status": {"phase": phase, "conditions": told, **self._replicas(restarts)}})
        words = ("patch", "pytorchtrainingjob", self._ref.name, *self._there, "--subresource=status", "--type=merge")
        self._kubectl(*words, "--patch", change)

    def wait_for_end(self) -> None:
        """Return when all pods have ended."""

        def ended() -> bool:
            return all(pod["status"].get("phase") in {"Succeeded", "Failed"} for pod in self._pods())

        wait_until("the pods' end", ended, timeout=PATIENCE)

    def clean_up(self) -> None:
        """Delete the pods, as after a job's end, and remember how they were."""
        self._replicas(0)
        self._kubectl("delete", "pods", *self._there, "--selector", self._label)

    @property
    def _label(self) -> str:
        return f"tensorstack.dev/owner-name={self._ref.name}"

    def _pods(self) -> list[Manifest]:
        found = json.loads(self._kubectl("get", "pods", *self._there, "--selector", self._label, "--output", "json"))
        return list(found["items"])

    def _replicas(self, restarts: int) -> Manifest:
        """Return tasks and numbers of the status; a replica whose pod is gone is as it was last, and deleted."""
        self._told = {name: {**each, "phase": "Deleted"} for name, each in self._told.items()}
        self._told |= {pod["metadata"]["name"]: _replica(pod) for pod in self._pods()}
        job = self._kubectl.get("pytorchtrainingjob", self._ref.name, namespace=self._ref.namespace)
        tasks = [
            {
                "type": role["type"],
                "restartCount": restarts,
                "replicas": [each for name, each in self._told.items() if f"-{role['type']}-" in name],
            }
            for role in job["spec"]["replicaSpecs"]
        ]
        phases = [each["phase"] for each in self._told.values()]
        numbers = {name.lower(): phases.count(name) for name in PHASES}
        return {"tasks": tasks, "aggregate": numbers, "backoffCount": restarts}

    def _pod(self, job: Manifest, role: Manifest, index: int) -> Manifest:
        meta, template = job["metadata"], role["template"]
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
        labels = {**template["metadata"]["labels"], "tensorstack.dev/owner-name": meta["name"]}
        name = f"{meta['name']}-5b373-{role['type']}-{index}"
        spec = {**template["spec"], "containers": self._started(job, template["spec"]["containers"])}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": meta["namespace"],
                "labels": labels,
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {**spec, "restartPolicy": "Never"},
        }

    def _started(self, job: Manifest, containers: list[Manifest]) -> list[Manifest]:
        """Return the containers of a pod; where torchrun is wanted, it starts the first one's arguments."""
        torchrun = job["spec"].get("torchrunConfig") or {}
        if not torchrun.get("enabled"):
            return containers
        options = ("--standalone", f"--nproc-per-node={torchrun['procPerNode']}")
        restarts = f"--max-restarts={torchrun.get('maxRestarts', 0)}"
        first, *others = containers
        return [{**first, "command": ["torchrun", *options, restarts]}, *others]


def _replica(pod: Manifest) -> Manifest:
    """Return what the status tells of a pod."""
    containers = []
    for each in pod["status"].get("containerStatuses") or ():
        ((state, more),) = each["state"].items()
        code = {"exitCode": more["exitCode"]} if "exitCode" in more else {}
        containers.append({"name": each["name"], "state": state.capitalize(), **code})
    meta, phase = pod["metadata"], pod["status"].get("phase") or "Creating"
    return {"name": meta["name"], "uid": meta["uid"], "phase": phase, "containers": containers}
