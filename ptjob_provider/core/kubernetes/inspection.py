"""Inspect a job's outputs inside the cluster: create a probe pod, wait for its end, read its report, delete it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from ptjob_provider.core.errors import (
    ClusterUnavailable,
    JobAlreadyExists,
    JobNotFound,
    OutputsNotVerified,
    PermissionDenied,
    PTJobError,
)
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.helper_pods import events_of
from ptjob_provider.core.kubernetes.probe import (
    ASKS_FOR,
    checkpoint_pod,
    clock_difference,
    is_held_by_one_node,
    is_over,
    obstacle,
    pod_name,
    probe_pod,
    read_checkpoint,
    read_report,
)
from ptjob_provider.core.outputs.contract import OutputReport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime
    from typing import Any

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.probe import ProbeOptions
    from ptjob_provider.core.outputs.checkpoints import Checkpoint
    from ptjob_provider.core.outputs.contract import ResolvedOutput, ResolvedOutputs

T = TypeVar("T")

logger = logging.getLogger(__name__)

_PAUSE = 1.0
"""Seconds between two requests of the same kind."""
_AFTERWARDS = 10.0
"""Maximum seconds, after the time limit, for deleting the pod."""
_LOG_READS = 3
"""Tries to read the log: the container runtime may still be writing the log of an ended container."""


async def inspect(
    client: Client, job: Manifest, outputs: ResolvedOutputs, *, options: ProbeOptions, **asked: Any
) -> OutputReport:
    """Return the report on the outputs; the probe pod is deleted afterwards, even on cancellation.

    The pod takes the clock of its node for the API server's. If it is not, a second pod allows two minutes.

    Args:
        client: client of the job's cluster.
        job: the ended job's object.
        outputs: the outputs to inspect.
        options: image and time limit.
        asked: further arguments of `probe_pod`: rank0, since and curves.

    Raises:
        OutputsNotVerified: the outputs could not be inspected; the text says why and what to do.
    """
    if not outputs.verified:
        return OutputReport()
    report, off = await _inspect(client, job, outputs, options=options, **asked)
    if off:
        report, _ = await _inspect(client, job, outputs, options=options, doubt=off, **asked)
    return report


async def _inspect(
    client: Client, job: Manifest, outputs: ResolvedOutputs, *, options: ProbeOptions, **asked: Any
) -> tuple[OutputReport, str]:
    """Return the report of one pod, and the difference between the clocks of its node and the API server, if any."""
    async with _probing(client, job, options) as probe:
        began = asyncio.get_running_loop().time()
        report = await probe.inspect(job, outputs, **asked)
        took = asyncio.get_running_loop().time() - began
        return report, clock_difference(report, probe.pod or {}, seconds=took)


async def find_checkpoint(
    client: Client, job: Manifest, folder: ResolvedOutput, *, since: datetime, options: ProbeOptions
) -> Checkpoint:
    """Return the newest complete checkpoint in a folder of a job that is not created yet, by a pod as in `inspect`.

    Raises:
        OutputsNotVerified: the folder could not be looked at; the text says why and what to do.
    """
    async with _probing(client, job, options) as probe:
        pod = checkpoint_pod(job, folder, name=probe.name, since=since, options=options)
        return await probe.answer(pod, read_checkpoint)


@asynccontextmanager
async def _probing(client: Client, job: Manifest, options: ProbeOptions) -> AsyncIterator[_Probe]:
    """Yield the probe of a pod, within the time limit; the pod is deleted afterwards."""
    name = pod_name(job["metadata"]["name"], secrets.token_hex(3))
    probe = _Probe(client, job["metadata"]["namespace"], name, options)
    try:
        async with asyncio.timeout(options.timeout):
            yield probe
    except TimeoutError:
        raise OutputsNotVerified(await probe.delay()) from None
    except OutputsNotVerified:
        raise
    except PTJobError as error:
        raise OutputsNotVerified(f"{probe}: {error}") from error
    finally:
        await probe.delete()


class _Probe:
    """Life cycle of one probe pod.

    Attributes:
        name: name of the pod.
        pod: last observed state of the pod; None before it was created.
    """

    def __init__(self, client: Client, namespace: str, name: str, options: ProbeOptions) -> None:
        self.name = name
        self.pod: Manifest | None = None
        self._client = client
        self._namespace = namespace
        self._options = options
        self._quota_message = ""

    def __str__(self) -> str:
        return f"the probe pod {self._namespace}/{self.name}"

    async def inspect(self, job: Manifest, outputs: ResolvedOutputs, **asked: Any) -> OutputReport:
        """Return the report about the outputs of a job that has ended."""
        on_its_node = await self._holds_one_node(outputs)
        manifest = probe_pod(job, outputs, name=self.name, on_its_node=on_its_node, options=self._options, **asked)
        return await self.answer(manifest, read_report)

    async def answer(self, manifest: Manifest, read: Callable[[str], T | None]) -> T:
        """Create the pod, wait for its end, and return its answer; `read` parses its log."""
        await self._create(manifest)
        await self._wait()
        return await self._read(read)

    async def delay(self) -> str:
        """Return why the time limit was exceeded."""
        late = f"{self} gave no answer within {self._options.timeout:g} s"
        if self._quota_message and self.pod is None:
            return f"{late}: {self._quota_message}; free quota for a pod with {ASKS_FOR}, or raise it"
        if self.pod is None:
            return f"{late}: it was not created yet; see whether the API server is well"
        events = await events_of(self._client, self._namespace, self.name)
        return f"{late}: it {obstacle(self.pod, events, title=self._options.title)}"

    async def delete(self) -> None:
        """Delete the pod if it exists. If that fails, the pod ends at its deadline and is deleted with the job."""
        try:
            async with asyncio.timeout(_AFTERWARDS):
                await self._client.delete(self._path)
        except (JobNotFound, PermissionDenied):  # it was not created, as a rule
            return
        except (PTJobError, TimeoutError) as error:
            logger.warning("%s could not be deleted; it is deleted with the job: %s", self, error)

    @property
    def _path(self) -> str:
        return paths.pods(self._namespace, self.name)

    async def _holds_one_node(self, outputs: ResolvedOutputs) -> bool:
        names = {output.claim for output in outputs.verified.values()}
        claims = [await self._client.get(paths.claims(self._namespace, name)) for name in sorted(names)]
        return any(map(is_held_by_one_node, claims))

    async def _create(self, manifest: Manifest) -> None:
        """Create the pod; retry while the quota is full, because the job's own pods may still be terminating."""
        while True:
            try:
                self.pod = await self._client.post(paths.pods(self._namespace), manifest)
            except JobAlreadyExists:  # an earlier try of this request has created it: the name is random
                return
            except ClusterUnavailable as error:
                if error.code != HTTPStatus.FORBIDDEN:
                    raise
                self._quota_message = str(error)
                await asyncio.sleep(_PAUSE)
            else:
                logger.info("%s looks at the claim", self)
                return

    async def _wait(self) -> None:
        while True:
            self.pod = await self._get()
            if is_over(self.pod):
                return
            await asyncio.sleep(_PAUSE)

    async def _get(self) -> Manifest:
        with suppress(JobNotFound):
            pod = await self._client.get(self._path)
            if not pod["metadata"].get("deletionTimestamp"):  # a pod that is being deleted also ends
                return pod
        raise OutputsNotVerified(f"{self} was deleted by somebody before it had answered")

    async def _read(self, read: Callable[[str], T | None]) -> T:
        pod = self.pod or {}
        if pod["status"]["phase"] == "Succeeded":
            for _ in range(_LOG_READS):
                if report := read(await self._log()):
                    return report
                await asyncio.sleep(_PAUSE)
        raise OutputsNotVerified(f"{self} {obstacle(pod, title=self._options.title)}")

    async def _log(self) -> str:
        path = paths.pod_log(self._namespace, self.name)
        async with self._client.stream(path, silence=_AFTERWARDS) as chunks:
            return b"".join([chunk async for chunk in chunks]).decode("utf-8", "replace")
