"""Tests of the probe pod on a real cluster: how a worker without the volume learns about a job's outputs."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cluster.fixtures import import_or_skip
from cluster.images import INIT_IMAGE
from cluster.shell import until
from cluster.tenants import until_counted
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from kubernetes_backend.finished import (
    MODEL,
    PATIENT,
    TFEVENTS,
    digest,
    inspected,
    job,
    look,
    no_probe_is_left,
    prepared_volume,
    probes,
    succeeded,
)
from ptjob_provider.core.errors import OutputsNotVerified
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.kubernetes.probe import ProbeOptions
from ptjob_provider.core.outputs.contract import OutputReport, ResolvedOutputs, problems
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.submit import Submission, ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from recorded import OWNER

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.identity import Manifest

WRITE = ("python3", "-c", "open('/data/model.pt', 'w').write('parameters')")
LARGE = 200 * 2**30
"""Bytes of a file that takes minutes to read and, being sparse, needs no space."""


def test_outputs_are_inspected_without_mounting_a_volume_here(
    cluster: Cluster, namespace: str, digits_image: str
) -> None:
    """On a ReadWriteOnce claim: size, sha256, step and last scalars equal those in the files, read by tensorboard."""
    accumulators = import_or_skip("tensorboard.backend.event_processing.event_accumulator")
    volume = prepared_volume(cluster, namespace)
    where = {"PTJOB_MODEL_PATH": MODEL.container_path, "PTJOB_TFEVENTS_DIR": TFEVENTS.container_path}
    container = {"args": ["--epochs", "2"], "env": [{"name": name, "value": path} for name, path in where.items()]}

    finished = succeeded(cluster, job(namespace, digits_image, container=container))
    report = look(cluster, finished, tfevents=TFEVENTS)

    assert report.model
    assert (report.model.bytes, report.model.sha256) == (
        (volume / "model.pt").stat().st_size,
        digest(volume / "model.pt"),
    )
    events = accumulators.EventAccumulator(str(volume / "tb")).Reload()
    last = {tag: events.Scalars(tag)[-1] for tag in events.Tags()["scalars"]}
    assert report.tfevents
    assert report.tfevents.scalars == {tag: scalar.value for tag, scalar in last.items()}
    assert report.tfevents.last_step == max(scalar.step for scalar in last.values()) == 2
    outputs = ResolvedOutputs(model=MODEL, tfevents=TFEVENTS)
    assert problems(report, outputs) == ()


def test_a_retry_only_verifies(cluster: Cluster, namespace: str, digits_image: str) -> None:
    """The finished job is adopted, with the same pod and the same model; nothing is trained a second time."""
    volume = prepared_volume(cluster, namespace)
    command = ["sh", "-c", "cat /proc/sys/kernel/random/uuid > /data/model.pt"]
    fields = {"volumes": ["data/out:/data"], "model": "/data/model.pt"}
    wanted = TrainingJob.parse(name="train", namespace=namespace, image=INIT_IMAGE, command=command, **fields)
    store, config = MemoryStore(), config_of(cluster.layout.kubeconfig)

    async def tried(options: ProbeOptions) -> tuple[Submission, JobOutcome]:
        backend = KubernetesBackend(config, probe=options)
        async with asyncio.timeout(PATIENCE):
            submission = await ensure_submitted(backend, wanted, owner=OWNER, store=store)
            return submission, await follow(backend, submission, sink=ListSink())

    first, unverified = asyncio.run(tried(PATIENT))
    trained = digest(volume / "model.pt")
    second, verified = asyncio.run(tried(replace(PATIENT, image=digits_image)))

    assert unverified.outcome is Outcome.UNVERIFIED
    assert (second.ref, second.adopted) == (first.ref, True)
    assert verified.outcome is Outcome.SUCCEEDED
    assert verified.result
    assert verified.result["model"]["sha256"] == digest(volume / "model.pt") == trained


def test_a_full_quota_is_reported_and_one_that_frees_itself_is_waited_for(
    cluster: Cluster, namespace: str, digits_image: str
) -> None:
    """Without quota for one more pod, the error names what is full; if quota is freed in time, nothing is reported."""
    volume = prepared_volume(cluster, namespace)
    finished = succeeded(cluster, job(namespace, digits_image, *WRITE))
    fill_quota(cluster, namespace)

    with pytest.raises(OutputsNotVerified) as caught:
        look(cluster, finished, options=ProbeOptions(timeout=10))
    report = asyncio.run(look_while_quota_is_freed(cluster, finished))

    assert "exceeded quota: full" in str(caught.value)
    assert "free quota for a pod with 100m CPU and 128Mi" in str(caught.value)
    assert report.model
    assert report.model.sha256 == digest(volume / "model.pt")


def fill_quota(cluster: Cluster, namespace: str) -> None:
    metadata = {"name": "full", "namespace": namespace}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": "0"}}}
    cluster.kubectl.apply(quota)
    until_counted(cluster.kubectl, quota, timeout=PATIENCE)


async def look_while_quota_is_freed(cluster: Cluster, finished: Manifest) -> OutputReport:
    looking = asyncio.create_task(inspected(cluster, finished, ResolvedOutputs(model=MODEL), PATIENT))
    await asyncio.sleep(2)
    namespace = finished["metadata"]["namespace"]
    await asyncio.to_thread(cluster.kubectl, "delete", "resourcequota", "full", "--namespace", namespace)
    return await looking


def test_a_cancelled_inspection_leaves_no_pod(cluster: Cluster, namespace: str, digits_image: str) -> None:
    """Cancelling the task deletes its pod."""
    volume = prepared_volume(cluster, namespace)
    finished = succeeded(cluster, job(namespace, digits_image, *WRITE))
    os.truncate(volume / "model.pt", LARGE)

    async def stopped() -> None:
        looking = asyncio.create_task(inspected(cluster, finished, ResolvedOutputs(model=MODEL), PATIENT))
        await asyncio.to_thread(until_it_is_there, cluster, finished)
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking

    asyncio.run(stopped())

    no_probe_is_left(cluster, finished)


def test_the_probe_goes_with_its_job(cluster: Cluster, namespace: str, digits_image: str) -> None:
    """A job deleted meanwhile takes the probe pod along, and the caller gets an error."""
    volume = prepared_volume(cluster, namespace)
    finished = succeeded(cluster, job(namespace, digits_image, *WRITE))
    os.truncate(volume / "model.pt", LARGE)

    async def deleted() -> OutputReport:
        looking = asyncio.create_task(inspected(cluster, finished, ResolvedOutputs(model=MODEL), PATIENT))
        await asyncio.to_thread(until_it_is_there, cluster, finished)
        await asyncio.to_thread(cluster.kubectl, "delete", "pytorchjob", "train", "--namespace", namespace)
        return await looking

    with pytest.raises(OutputsNotVerified, match="was deleted by somebody"):
        asyncio.run(deleted())

    assert (volume / "model.pt").stat().st_size == LARGE


def until_it_is_there(cluster: Cluster, finished: Manifest) -> None:
    until("the probe pod", lambda: probes(cluster, finished) or None, timeout=PATIENCE)
