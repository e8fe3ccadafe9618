"""Finished jobs on the tests' cluster, the files in their claim, and probes of their outputs."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from cluster.shell import until, wait_until
from cluster.tenants import service_account
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.identity import JobRef, Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.kubernetes.probe import PROBE_LABEL, ProbeOptions
from ptjob_provider.core.outputs.contract import OutputReport, ResolvedOutput, ResolvedOutputs
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.status import parse_instant
from rbac import rules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from cluster.boot import Cluster
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.run.outcome import JobOutcome

MODEL = ResolvedOutput(
    uri="pvc://data/out/model.pt", claim="data", path="out/model.pt", container_path="/data/model.pt"
)
TFEVENTS = ResolvedOutput(uri="pvc://data/out/tb", claim="data", path="out/tb", container_path="/data/tb")
PATIENT = ProbeOptions(timeout=PATIENCE)
"""For probes that end by themselves: on a busy machine a pod may take a minute to start."""


def claim(namespace: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def job(namespace: str, image: str, *command: str, container: Manifest | None = None, **pod: Any) -> Manifest:
    """Return a job with one replica that has the folder `out` of the claim at /data."""
    trainer = {
        "name": "pytorch",
        "image": image,
        **({"command": list(command)} if command else {}),
        "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "out"}],
        **(container or {}),
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    template = {"spec": {"containers": [trainer], "volumes": volumes, **pod}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {
            "pytorchReplicaSpecs": {"Master": {"replicas": 1, "restartPolicy": "Never", "template": template}},
        },
    }


def prepared_volume(cluster: Cluster, namespace: str) -> Path:
    """Bind the claim, open the folder that jobs mount to every user, and return that folder."""
    cluster.kubectl.apply(claim(namespace))
    root = wait_until("the claim to be bound", lambda: bound_volume(cluster, namespace), timeout=PATIENCE)
    out = root / "out"
    out.mkdir()
    for folder in (root, out):
        folder.chmod(0o777)
    return out


def bound_volume(cluster: Cluster, namespace: str) -> Path | None:
    found = cluster.kubectl.get("persistentvolumeclaim", "data", namespace=namespace)
    is_bound = found.get("status", {}).get("phase") == "Bound"
    return cluster.volume("data", namespace=namespace) if is_bound else None


def succeeded(cluster: Cluster, wanted: Manifest) -> Manifest:
    """Run the job to its success and return its object."""
    namespace = wanted["metadata"]["namespace"]
    cluster.kubectl.apply(wanted)

    def finished() -> Manifest | None:
        found = cluster.kubectl.get("pytorchjob", "train", namespace=namespace)
        true = {one["type"] for one in found.get("status", {}).get("conditions", []) if one["status"] == "True"}
        assert "Failed" not in true, cluster.kubectl("logs", "train-master-0", "--namespace", namespace)
        return found if "Succeeded" in true else None

    return until("the job to succeed", finished, timeout=180)


async def followed(
    cluster: Cluster, namespace: str, name: str, *, limits: Limits | None = None, **fields: Any
) -> tuple[JobOutcome, ListSink]:
    backend = KubernetesBackend(config_of(service_account(cluster, namespace, rules())))
    owner, sink = Owner(instance="test", ids={"task_id": name}, labels={}), ListSink()
    job = TrainingJob.parse(name=name, namespace=namespace, **fields)
    async with asyncio.timeout(PATIENCE):
        submission = await ensure_submitted(backend, job, owner=owner, store=MemoryStore())
        return await follow(backend, submission, sink=sink, limits=limits or Limits()), sink


async def inspected(
    cluster: Cluster, finished: Manifest, outputs: ResolvedOutputs, options: ProbeOptions
) -> OutputReport:
    backend = KubernetesBackend(config_of(cluster.layout.kubeconfig), probe=options)
    return await backend.inspect_outputs(JobRef.of(finished), outputs, since=began(finished))


def look(
    cluster: Cluster,
    finished: Manifest,
    *,
    tfevents: ResolvedOutput | None = None,
    options: ProbeOptions = PATIENT,
) -> OutputReport:
    """Inspect the outputs as the back-end does, and check that no probe pod is left."""
    outputs = ResolvedOutputs(model=MODEL, tfevents=tfevents)
    try:
        return asyncio.run(inspected(cluster, finished, outputs, options))
    finally:
        no_probe_is_left(cluster, finished)


def no_probe_is_left(cluster: Cluster, finished: Manifest) -> None:
    until("the probe pod to be gone", lambda: not probes(cluster, finished), timeout=PATIENCE)


def began(finished: Manifest) -> datetime:
    at = parse_instant(finished["metadata"]["creationTimestamp"])
    assert at
    return at


def probes(cluster: Cluster, finished: Manifest) -> Sequence[Manifest]:
    return cluster.kubectl.list("pods", namespace=finished["metadata"]["namespace"], selector=PROBE_LABEL)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
