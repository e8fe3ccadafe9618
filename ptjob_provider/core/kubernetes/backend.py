"""Implement each method of `core.backend.Backend` with requests to the API server."""

from __future__ import annotations

import math
from contextlib import aclosing
from http import HTTPStatus
from typing import IO, TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.backend import Observation, View
from ptjob_provider.core.errors import (
    ClusterError,
    ClusterUnavailable,
    InvalidSpec,
    JobChanged,
    JobNotFound,
    OutputsNotVerified,
    PermissionDenied,
    PTJobError,
)
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds.code import in_pieces, with_pieces
from ptjob_provider.core.kubernetes import discovery
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.discovery import fitted_to_runtime
from ptjob_provider.core.kubernetes.folder_on_claim import with_folder_on_claim
from ptjob_provider.core.kubernetes.informer import EventPoller, cached_job, informer_of, subscribe
from ptjob_provider.core.kubernetes.informer.claims import watched_claim
from ptjob_provider.core.kubernetes.inspection import find_checkpoint, inspect
from ptjob_provider.core.kubernetes.logs import ReplicaLog
from ptjob_provider.core.kubernetes.owned import ensure_secret, let_arena_delete
from ptjob_provider.core.kubernetes.pods import has_ended
from ptjob_provider.core.kubernetes.probe import ProbeOptions, rank0_of
from ptjob_provider.core.kubernetes.tensorboard.of_job import ensure_tensorboard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.backend import Claim
    from ptjob_provider.core.history.peak_usage import PeakUsage
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.config import ClusterConfig
    from ptjob_provider.core.logs import LogCursor, LogLine
    from ptjob_provider.core.outputs.checkpoints import Checkpoint
    from ptjob_provider.core.outputs.contract import OutputReport, ResolvedOutput, ResolvedOutputs


class KubernetesBackend:
    """Runs jobs on a cluster; implements `backend.Backend`.

    Instances with equal configurations on one event loop share their connections.

    Args:
        config: access to the cluster.
        probe: settings of the output probe.
    """

    def __init__(self, config: ClusterConfig, *, probe: ProbeOptions | None = None) -> None:
        self._config = config
        self._probe = probe or ProbeOptions()

    async def submit(
        self, manifest: Manifest, *, secret: Manifest | None = None, archive: IO[bytes] | None = None
    ) -> JobRef:
        """Create the job; the server refuses unknown fields instead of dropping them. See `Backend.submit`."""
        if archive is not None:
            async with shared_client(self._config) as client:
                manifest = await with_folder_on_claim(client, manifest, archive, probe=self._probe)
        if secret is not None:
            manifest = with_pieces(manifest, in_pieces(secret))
        ref = await self._create(manifest)
        if secret is None:
            return ref
        try:
            await self.give_secret(ref, secret)
        except PTJobError as error:
            if error.retryable:
                raise
            await self.delete(ref)  # otherwise its pods would wait for the Secret
            if not isinstance(error, PermissionDenied):
                raise
            advice = "credentials may be in a Secret of your own that `code` names"
            raise PermissionDenied(f"{error}; {advice}", code=error.code, reason=error.reason) from error
        return ref

    async def give_secret(self, ref: JobRef, secret: Manifest) -> None:
        """Create the job's Secret if missing; see `Backend.give_secret`."""
        async with shared_client(self._config) as client:
            await ensure_secret(client, ref, secret)

    async def ensure_tensorboard(self, ref: JobRef) -> str:
        """Create the job's TensorBoard if missing; see `Backend.ensure_tensorboard`."""
        async with shared_client(self._config) as client:
            return await ensure_tensorboard(client, ref)

    async def _create(self, manifest: Manifest) -> JobRef:
        meta = manifest["metadata"]
        path = paths.jobs(manifest["kind"], meta["namespace"])
        async with shared_client(self._config) as client:
            manifest = await fitted_to_runtime(client, manifest)
            try:
                ref = JobRef.of(await _send_or_adapt(client, manifest, lambda body: client.post(path, body)))
            except JobNotFound as error:  # the namespace does not exist
                allowed = "allowed: a namespace that exists on the cluster"
                raise InvalidSpec.of("namespace", meta["namespace"], allowed) from error
            except ClusterError as error:
                if error.code == HTTPStatus.NOT_FOUND:
                    raise await discovery.refusal(client, manifest) from error
                raise
            await let_arena_delete(client, ref)
            return ref

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return the job's object; see `Backend.get`."""
        async with shared_client(self._config) as client:
            return await client.object(paths.jobs(kind, namespace, name))

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        """Return the objects with these labels; see `Backend.list`."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        query = {"labelSelector": selector} if selector else {}
        async with shared_client(self._config) as client:
            jobs = await client.items(paths.jobs(kind, namespace), **query)
        return sorted(jobs, key=lambda job: (job["metadata"]["creationTimestamp"], job["metadata"]["name"]))

    async def watch(self, ref: JobRef) -> AsyncGenerator[Observation, None]:
        """Yield the job's state after each change; see `Backend.watch`."""
        async with subscribe(self._config, ref) as cache, aclosing(cache.observations()) as observations:
            async for observation in observations:
                yield observation
                del observation  # saves memory: else each of ten thousand subscribers keeps its last observation

    def view(self, ref: JobRef) -> View:
        """Return how current the job's watches are; see `Backend.view`."""
        informer = informer_of(self._config, ref)
        return informer.view() if informer is not None else View(live=0.0, age=math.inf)

    async def read(self, ref: JobRef) -> Observation:
        """Return the job, and then its pods, as the server has them; the cache gets these pods, too."""
        job = await self._job(ref)
        if job is None:
            return Observation(job=None)
        pods = await self._pods(ref)
        cache = cached_job(self._config, ref)
        if cache is None:
            return Observation(job=job, pods=pods)
        for pod in pods:
            cache.set_pod(pod)  # else an observation of a watch that lags would follow this one
        return Observation(job=job, pods=pods, events=cache.events)

    async def _job(self, ref: JobRef) -> Manifest | None:
        """Return the object if it exists and has this uid."""
        try:
            job = await self.get(ref.kind, ref.namespace, ref.name)
        except JobNotFound:
            return None
        return job if JobRef.of(job) == ref else None

    async def _pods(self, ref: JobRef) -> Sequence[Manifest]:
        """Return the job's pods, whichever release of its operator has labelled them."""
        kind, path = kinds.named(ref.kind), paths.pods(ref.namespace)
        selectors = dict.fromkeys(kind.pod_selector(ref.name, older=older) for older in (False, True))
        async with shared_client(self._config) as client:
            found = [pod for each in selectors for pod in await client.items(path, labelSelector=each)]
        return [pod for pod in found if kinds.is_pod_of(pod, ref)]

    async def reasons(self, ref: JobRef) -> Sequence[Manifest]:
        """Return the job's reasons for waiting; see `Backend.reasons`."""
        async with subscribe(self._config, ref) as cache, shared_client(self._config) as client:
            await EventPoller(ref.namespace).read_now(client, cache)
            return cache.events

    async def logs(
        self, ref: JobRef, replica: str, *, since: LogCursor | None = None, follow: bool = True
    ) -> AsyncGenerator[LogLine, None]:
        """Yield a replica's lines; see `Backend.logs`."""
        async with subscribe(self._config, ref) as cache, shared_client(self._config) as client:
            log = ReplicaLog(client, cache, ref, replica)
            async with aclosing(log.follow(since) if follow else log.snapshot(since)) as lines:
                async for line in lines:
                    yield line

    async def patch(self, ref: JobRef, change: Manifest) -> None:
        """Merge the change into the object; see `Backend.patch`."""
        with_uid = {**change, "metadata": {**(change.get("metadata") or {}), "uid": ref.uid}}
        async with shared_client(self._config) as client:
            try:
                path = paths.jobs(ref.kind, ref.namespace, ref.name)
                if "spec" not in with_uid:
                    await client.patch(path, with_uid)
                    return
                typed = {"apiVersion": kinds.named(ref.kind).API_VERSION, "kind": ref.kind, **with_uid}
                await _send_or_adapt(client, typed, lambda body: client.patch(path, body, fieldValidation="Strict"))
            except (ClusterError, InvalidSpec) as error:  # another uid: 422 for custom resources, else 409
                if not isinstance(error, JobNotFound) and await self._is_replaced(ref):
                    raise JobNotFound(f"{ref}: another job has the name now") from error
                if "spec" not in with_uid and isinstance(error, InvalidSpec):  # not the fault of the user's spec
                    raise ClusterError(str(error)) from error
                raise

    async def _is_replaced(self, ref: JobRef) -> bool:
        try:
            return await self._job(ref) is None
        except ClusterError:
            return False

    async def delete(self, ref: JobRef, *, version: str | None = None) -> None:
        """Delete the job and its pods, even if a finalizer of another program blocks the job. See `Backend.delete`."""
        preconditions = {"uid": ref.uid} | ({"resourceVersion": version} if version is not None else {})
        options = {"propagationPolicy": kinds.named(ref.kind).DELETION, "preconditions": preconditions}
        async with shared_client(self._config) as client:
            try:
                await client.delete(paths.jobs(ref.kind, ref.namespace, ref.name), options)
            except JobNotFound:
                return
            except ClusterError as error:
                if error.code != HTTPStatus.CONFLICT:
                    raise
                if await self._job(ref) is not None:  # the uid is not what has changed
                    raise JobChanged(f"{ref}: {error}", code=error.code, reason=error.reason) from error

    async def pods_gone(self, ref: JobRef) -> bool:
        """Return whether no pod of the job runs; see `Backend.pods_gone`."""
        cache = cached_job(self._config, ref)
        if cache is not None and cache.has_surely_stopped:
            return True
        return all(has_ended(pod) for pod in await self._pods(ref))

    async def inspect_outputs(
        self, ref: JobRef, outputs: ResolvedOutputs, *, since: datetime, curves: bool = False
    ) -> OutputReport:
        """Inspect the outputs with a pod that mounts their claims; see `inspection`."""
        async with shared_client(self._config) as client:
            try:
                job = await self._job(ref)
                pods = await self._pods(ref) if job is not None else ()
            except ClusterError as error:
                raise OutputsNotVerified(f"{ref}: the job cannot be read any more: {error}") from error
            if job is None:
                raise OutputsNotVerified(f"{ref}: the job is gone")
            rank0 = rank0_of(job, pods)
            return await inspect(client, job, outputs, rank0=rank0, since=since, curves=curves, options=self._probe)

    async def find_checkpoint(self, job: Manifest, folder: ResolvedOutput, *, since: datetime) -> Checkpoint:
        """Look for a checkpoint with a pod that mounts the claim; see `Backend.find_checkpoint`."""
        async with shared_client(self._config) as client:
            return await find_checkpoint(client, job, folder, since=since, options=self._probe)

    async def usage(self, ref: JobRef) -> Mapping[str, PeakUsage]:
        """Return the usage measured while the job is followed on this loop; see `Backend.usage`."""
        cache = cached_job(self._config, ref)
        return cache.usage() if cache is not None else {}

    def watch_claim(self, namespace: str, name: str) -> AsyncGenerator[Claim | None, None]:
        """Yield a claim's annotations after each change; see `Backend.watch_claim`."""
        return watched_claim(self._config, namespace, name)


async def _send_or_adapt(
    client: Client, manifest: Manifest, send: Callable[[Manifest], Awaitable[Manifest]]
) -> Manifest:
    """Send the manifest; if the server rejects it, send its equivalent for an older CRD, if there is one."""
    try:
        return await send(manifest)
    except InvalidSpec:
        try:
            fields = await discovery.spec_fields(client, manifest)
        except ClusterUnavailable:
            raise
        except ClusterError:
            fields = frozenset()
        older = kinds.named(manifest["kind"]).converted_for(manifest, fields) if fields else manifest
        if older == manifest:
            raise
    return await send(older)
