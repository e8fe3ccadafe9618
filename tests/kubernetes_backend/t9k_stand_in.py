"""The public part of T9k's platform: its CRD, and a scripted stand-in for its controller, which is not public."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes_backend import scripted_controller
from kubernetes_backend.scripted_controller import ScriptedController, crd
from kubernetes_backend.t9k_schema import SPEC

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.identity import Manifest

CRD = crd("PyTorchTrainingJob", "batch.tensorstack.dev/v1beta1", spec=SPEC)


def serve(cluster: Cluster) -> Cluster:
    """Install the kind, and return the cluster."""
    return scripted_controller.serve(cluster, CRD)


class ScriptedT9kController(ScriptedController):
    """A stand-in for T9k's controller: creates pods with the documented names and label, and reports on them."""

    KIND = "PyTorchTrainingJob"
    LABEL = "tensorstack.dev/owner-name"

    def make_pods(self) -> None:
        """Create the pods of all roles, owned by the job."""
        job = self.job()
        for role in job["spec"]["replicaSpecs"]:
            template = role["template"]
            containers = self._started(job, template["spec"]["containers"])
            spec = {**template["spec"], "containers": containers, "restartPolicy": "Never"}
            for index in range(role["replicas"]):
                name = f"{job['metadata']['name']}-5b373-{role['type']}-{index}"
                self.make_pod(job, name, template["metadata"]["labels"], spec)
        self.tell("Running")

    def tell(self, phase: str, *conditions: tuple[str, str]) -> None:
        """Write the job's status: its phase, the conditions that are true, and its replicas."""
        instant = "2026-11-22T00:00:00Z"
        found = [
            {"type": kind, "status": "True", "reason": reason, "message": reason, "lastTransitionTime": instant}
            for kind, reason in conditions
        ]
        replicas = [_replica(pod) for pod in self.pods()]
        tasks = [
            {"type": role["type"], "replicas": [each for each in replicas if f"-{role['type']}-" in each["name"]]}
            for role in self.job()["spec"]["replicaSpecs"]
        ]
        self.write({"phase": phase, "conditions": found, "tasks": tasks})

    def wait_for_end(self) -> None:
        """Wait until all pods have ended."""
        self.wait_for(lambda phases: {*phases} <= {"Succeeded", "Failed"})

    def _started(self, job: Manifest, containers: list[Manifest]) -> list[Manifest]:
        """Return a pod's containers; if the job uses torchrun, it starts the first container's arguments."""
        torchrun = job["spec"].get("torchrunConfig") or {}
        if not torchrun.get("enabled"):
            return containers
        options = ("--standalone", f"--nproc-per-node={torchrun['procPerNode']}")
        restarts = f"--max-restarts={torchrun.get('maxRestarts', 0)}"
        first, *others = containers
        return [{**first, "command": ["torchrun", *options, restarts]}, *others]


def _replica(pod: Manifest) -> Manifest:
    """Return the status of a pod's replica."""
    containers = []
    for each in pod["status"].get("containerStatuses") or ():
        ((state, more),) = each["state"].items()
        code = {"exitCode": more["exitCode"]} if "exitCode" in more else {}
        containers.append({"name": each["name"], "state": state.capitalize(), **code})
    meta, phase = pod["metadata"], pod["status"].get("phase") or "Creating"
    return {"name": meta["name"], "uid": meta["uid"], "phase": phase, "containers": containers}
