"""Implement the inspector port `core.inspector.Inspector` with requests to the API server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, JobNotFound, PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.inspector import CLAIM_MODE, CLAIM_SIZE, Usage
from ptjob_provider.core.kinds.queue import QUEUE_LABEL, as_event
from ptjob_provider.core.kubernetes import usage
from ptjob_provider.core.kubernetes.claim_files import mounted
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.informer import Workloads, read_usage, unreadable
from ptjob_provider.core.kubernetes.informer.scope import created_at
from ptjob_provider.core.kubernetes.logs.parse import LogReader, NodeRefused
from ptjob_provider.core.kubernetes.logs.runs import Run
from ptjob_provider.core.kubernetes.preflight import check_up
from ptjob_provider.core.kubernetes.rights import USAGE
from ptjob_provider.core.kubernetes.tensorboard.view import shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import Check, FileOptions, NodeUse, TensorBoardView
    from ptjob_provider.core.kubernetes.claim_files import ClaimPod
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.config import ClusterConfig
    from ptjob_provider.core.logs import LogLine

_SILENCE = 3600.0
"""Seconds without a line after which a followed log counts as broken."""

_ANSWER = 10.0
"""Maximum seconds without a byte of lines that exist already."""

_NEVER = "1970-01-01T00:00:00Z"
"""Time of lines without one, which are not the program's."""


class ClusterInspector:
    """Inspects jobs and a cluster; implements `core.inspector.Inspector`."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config

    async def events(self, ref: JobRef, pods: Sequence[str]) -> Sequence[Manifest]:
        """Return the events about the job and its pods; see `Inspector.events`."""
        async with shared_client(self._config) as client:
            job = await _job(client, ref)
            queued = await _queue_message(client, job) if job else []
            events = await client.items(paths.events(ref.namespace))
        controllers = kinds.controllers(job or {"kind": ref.kind, "metadata": {"name": ref.name}, "spec": {}})
        current = _since(events, job["metadata"]["creationTimestamp"] if job else "")
        return [*(event for event in current if _is_about(event, ref, pods, controllers)), *queued]

    async def container_log(
        self, ref: JobRef, pod: str, container: str, *, follow: bool, tail: int | None = None
    ) -> AsyncGenerator[LogLine, None]:
        """Yield a container's lines from the kubelet; see `Inspector.container_log`."""
        query = {"container": container, "timestamps": "true", "follow": "true" if follow else "false"}
        query |= {} if tail is None else {"tailLines": str(tail)}
        run = Run(pod_uid="", restart_count=0, started_at=_NEVER, ended=False, pod=pod, container=container)
        reader, silence = LogReader(run, None), _SILENCE if follow else _ANSWER
        async with (
            shared_client(self._config) as client,
            client.stream(paths.pod_log(ref.namespace, pod), silence=silence, **query) as chunks,
        ):
            async for chunk in chunks:
                for line in reader.feed(chunk):
                    yield line
            try:
                for line in reader.finish():
                    yield line
            except NodeRefused as error:
                raise ClusterUnavailable(f"{ref.namespace}/{pod}: {error}") from error

    async def nodes(self) -> Sequence[NodeUse]:
        """Return the cluster's nodes; see `Inspector.nodes`."""
        async with shared_client(self._config) as client:
            nodes = await client.items("/api/v1/nodes")
            return usage.nodes_in_use(nodes, await client.items("/api/v1/pods"))

    async def usage(self, job: Manifest) -> Usage:
        """Return the usage of a job's pods from the metrics API; see `Inspector.usage`."""
        ref = JobRef.of(job)
        async with shared_client(self._config) as client:
            kind = kinds.kind_of(job)
            of_job = {"labelSelector": kind.pod_selector(ref.name, older=kind.is_older(job))}
            items = await client.items(paths.pods(ref.namespace), **of_job)
            replica_of = kinds.replica_of(job)
            pods = {replica_of(pod): pod for pod in items if kinds.is_pod_of(pod, ref)}
            figures: usage.Measured = {}
            unknown = ""
            try:
                figures = await read_usage(client, ref.namespace, of_job)
            except PTJobError as error:
                unknown = f"what replicas use is unknown: {error}; it takes a metrics server, and the Role of {USAGE}"
        uses = []
        for replica in kinds.replicas(job):
            pod = pods.get(replica.name)
            uses.append(usage.replica_use(replica.name, pod, usage.figures_of(pod, figures) if pod else {}))
        return Usage(replicas=uses, unknown=unknown)

    async def claims(self, namespace: str) -> Sequence[Manifest]:
        """Return the claims; see `Inspector.claims`."""
        async with shared_client(self._config) as client:
            return await client.items(paths.claims(namespace))

    async def create_claim(
        self, namespace: str, name: str, *, size: str | None, mode: str | None, storage_class: str | None
    ) -> None:
        """Create a claim; see `Inspector.create_claim`."""
        spec = {"accessModes": [mode or CLAIM_MODE], "resources": {"requests": {"storage": size or CLAIM_SIZE}}}
        if storage_class is not None:
            spec["storageClassName"] = storage_class
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
        async with shared_client(self._config) as client:
            await client.post(paths.claims(namespace), claim)

    @asynccontextmanager
    async def files(self, namespace: str, claim: str, *, options: FileOptions) -> AsyncIterator[ClaimPod]:
        """Open the files on a claim, through a pod that mounts it; see `Inspector.files`."""
        async with shared_client(self._config) as client, mounted(client, namespace, claim, options) as files:
            yield files

    @asynccontextmanager
    async def tensorboard(self, what: TensorBoardView) -> AsyncIterator[str]:
        """Show a folder of events in a TensorBoard at a local address; see `Inspector.tensorboard`."""
        async with shared_client(self._config) as client, shown(client, what) as address:
            yield address

    async def checks(self, namespace: str) -> Sequence[Check]:
        """Check what jobs need of the cluster; see `Inspector.checks`."""
        async with shared_client(self._config) as client:
            return await check_up(client, namespace)


async def _job(client: Client, ref: JobRef) -> Manifest | None:
    """Return the job; None if it is gone, even if another job has its name."""
    try:
        job = await client.get(paths.jobs(ref.kind, ref.namespace, ref.name))
    except JobNotFound:
        return None
    return job if job["metadata"]["uid"] == ref.uid else None


async def _queue_message(client: Client, job: Manifest) -> list[Manifest]:
    """Return why the job waits in a queue of Kueue, as events; none if it is in no queue or Kueue is not installed."""
    meta = job["metadata"]
    if QUEUE_LABEL not in (meta.get("labels") or {}):
        return []
    try:
        workloads = await Workloads(meta["namespace"]).list(client, meta["uid"])
    except ClusterError as error:
        about = {"kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
        return [] if error.code == HTTPStatus.NOT_FOUND else [{**unreadable(error), "involvedObject": about}]
    return [event for workload in workloads if (event := as_event(workload)) is not None]


def _since(events: Sequence[Manifest], start: str) -> list[Manifest]:
    """Return the events since the job's creation, without those about objects that already had events before it.

    Those objects belong to an earlier job of the same name.
    """
    old_uids = {event["involvedObject"].get("uid") for event in events if created_at(event) < start} - {None}
    recent = (event for event in events if created_at(event) >= start)
    return [event for event in recent if event["involvedObject"].get("uid") not in old_uids]


def _is_about(event: Manifest, ref: JobRef, pods: Sequence[str], controllers: Sequence[tuple[str, str]]) -> bool:
    """Return whether the event is about this job, one of its pods, or an object that creates its pods."""
    about = event["involvedObject"]
    kind, name = about.get("kind"), about.get("name")
    return about.get("uid") == ref.uid or (kind, name) in controllers or (kind == "Pod" and name in pods)
