"""PyTorchTrainingJobs on a real API server: T9k's controller is not public, so a scripted one makes its real pods."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from cluster.images import INIT_IMAGE
from cluster.shell import wait_until
from cluster.tenants import service_account
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from kubernetes_backend.every_verb import VERBS, everything, rules_without
from ptjob_provider.core.conclusion import Outcome
from ptjob_provider.core.errors import PermissionDenied
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.lookup import find_job
from ptjob_provider.core.runner import follow
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.submission import ensure_submitted, stop_and_wait
from rbac import rules_of_kinds

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.identity import JobRef, Manifest

OWNER = Owner(instance="test", ids={"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": "-1"}, labels={})
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
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
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def platform(cluster: Cluster) -> Cluster:
    """Have the kind served."""
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

    def make_pods(self) -> None:
        """Make the pods of all roles, owned by the job."""
        job = self._kubectl.get("pytorchtrainingjob", self._ref.name, namespace=self._ref.namespace)
        for role in job["spec"]["replicaSpecs"]:
            for index in range(role["replicas"]):
                self._kubectl.apply(self._pod(job, role, index))
        self.tell("Running")

    def tell(self, phase: str, *conditions: tuple[str, str]) -> None:
        """Write the job's status: its phase, and the conditions that are true."""
        instant = "2026-11-22T00:00:00Z"
        told = [
            {"type": kind, "status": "True", "reason": reason, "message": reason, "lastTransitionTime": instant}
            for kind, reason in conditions
        ]
        change = json.dumps({"status": {"phase": phase, "conditions": told}})
        words = ("patch", "pytorchtrainingjob", self._ref.name, *self._there, "--subresource=status", "--type=merge")
        self._kubectl(*words, "--patch", change)

    def wait_for_end(self) -> None:
        """Return when all pods have ended."""
        label = f"tensorstack.dev/owner-name={self._ref.name}"

        def ended() -> bool:
            found = json.loads(self._kubectl("get", "pods", *self._there, "--selector", label, "--output", "json"))
            return all(pod["status"].get("phase") in {"Succeeded", "Failed"} for pod in found["items"])

        wait_until("the pods' end", ended, timeout=PATIENCE)

    def _pod(self, job: Manifest, role: Manifest, index: int) -> Manifest:
        meta, template = job["metadata"], role["template"]
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
        labels = {**template["metadata"]["labels"], "tensorstack.dev/owner-name": meta["name"]}
        name = f"{meta['name']}-5b373-{role['type']}-{index}"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": meta["namespace"],
                "labels": labels,
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {**template["spec"], "restartPolicy": "Never"},
        }


def job(namespace: str, script: str, **fields: Any) -> TrainingJob:
    """Return a job of two replicas that run a shell script."""
    command = ["sh", "-c", script]
    given = {"name": "digits", "kind": "PyTorchTrainingJob", "image": INIT_IMAGE, "command": command, "workers": 2}
    return TrainingJob.parse(**{**given, "namespace": namespace, **fields})


@pytest.mark.parametrize(
    ("script", "end", "outcome"),
    [
        ("echo trained", ("Succeeded", ("Completed", "Done")), Outcome.SUCCEEDED),
        ("echo trained; echo no such class; exit 3", ("Failed", ("Failed", "ReplicaFailed")), Outcome.FAILED),
    ],
    ids=["succeeds", "fails"],
)
async def test_a_job_is_followed_to_its_end(
    platform: Cluster, namespace: str, script: str, end: tuple[str, tuple[str, str]], outcome: Outcome
) -> None:
    """Its log is that of the first replica, whose pod has letters in its name that nobody knew before."""
    backend, sink = KubernetesBackend(config_of(service_account(platform, namespace, rules_of_kinds()))), ListSink()
    submission = await ensure_submitted(backend, job(namespace, script), owner=OWNER, store=MemoryStore())
    controller = ScriptedController(platform, submission.ref)

    async with asyncio.timeout(2 * PATIENCE):
        following = asyncio.create_task(follow(backend, submission, sink=sink))
        await asyncio.to_thread(controller.make_pods)
        await asyncio.to_thread(controller.wait_for_end)
        await asyncio.to_thread(controller.tell, end[0], end[1])
        conclusion = await following

    assert conclusion.outcome is outcome
    assert sink.lines[0] == "trained"
    if outcome is Outcome.FAILED:
        assert conclusion.diagnosis is not None
        assert "-worker-0 (rank 0) exited with code 3" in conclusion.diagnosis.summary
        assert "no such class" in conclusion.diagnosis.log_tail
    assert (await find_job(backend, namespace, submission.ref.name))["kind"] == "PyTorchTrainingJob"
    await stop_and_wait(backend, submission.ref)


@pytest.mark.parametrize("verb", VERBS)
async def test_every_verb_of_the_role_is_needed(platform: Cluster, namespace: str, verb: str) -> None:
    """Without it the error names it, as for PyTorchJobs."""
    backend = KubernetesBackend(config_of(service_account(platform, namespace, rules_of_kinds())))
    submission = await ensure_submitted(backend, job(namespace, "true"), owner=OWNER, store=MemoryStore())
    service_account(platform, namespace, rules_without("pytorchtrainingjobs", verb))

    with pytest.raises(PermissionDenied, match=f'cannot {verb} resource "pytorchtrainingjobs"'):
        await everything(backend, submission.ref, job(namespace, "true", name="other"))
