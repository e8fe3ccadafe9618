"""Inspect a job's outputs inside the cluster: create a probe pod, wait for its end, read its report, delete it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ptjob_provider.core.errors import ClusterUnavailable, OutputsNotVerified, PTJobError
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.helper_pods import running
from ptjob_provider.core.kubernetes.pods import has_ended
from ptjob_provider.core.kubernetes.probe import (
    checkpoint_pod,
    clock_difference,
    is_held_by_one_node,
    obstacle,
    pod_name,
    probe_pod,
    read_checkpoint,
    read_report,
)
from ptjob_provider.core.outputs.contract import OutputReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
"""Seconds between two reads of the log."""
_SILENCE = 10.0
"""Maximum seconds without a byte of the log."""
_LOG_READS = 3
"""Tries to read the log: the container runtime may still be writing that of an ended container, or no answer comes."""


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
    with _as_not_verified():
        report, off = await _inspect(client, job, outputs, options=options, **asked)
        if off:
            report, _ = await _inspect(client, job, outputs, options=options, doubt=off, **asked)
        return report


async def _inspect(
    client: Client, job: Manifest, outputs: ResolvedOutputs, *, options: ProbeOptions, **asked: Any
) -> tuple[OutputReport, str]:
    """Return the report of one pod, and the difference between the clocks of its node and the API server, if any."""
    began = asyncio.get_running_loop().time()
    names = {output.claim for output in outputs.verified.values()}
    claims = [await client.get(paths.claims(job["metadata"]["namespace"], name)) for name in sorted(names)]
    on_its_node = any(map(is_held_by_one_node, claims))
    manifest = probe_pod(job, outputs, name=_name(job), on_its_node=on_its_node, options=options, **asked)
    report, pod = await _answer(client, manifest, read_report, options)
    return report, clock_difference(report, pod, seconds=asyncio.get_running_loop().time() - began)


async def find_checkpoint(
    client: Client, job: Manifest, folder: ResolvedOutput, *, since: datetime, options: ProbeOptions
) -> Checkpoint:
    """Return the newest complete checkpoint in a folder of a job that is not created yet, by a pod as in `inspect`.

    Raises:
        OutputsNotVerified: the folder could not be looked at; the text says why and what to do.
    """
    with _as_not_verified():
        manifest = checkpoint_pod(job, folder, name=_name(job), since=since, options=options)
        checkpoint, _ = await _answer(client, manifest, read_checkpoint, options)
        return checkpoint


@contextmanager
def _as_not_verified() -> Iterator[None]:
    """Raise each error as `OutputsNotVerified`."""
    try:
        yield
    except OutputsNotVerified:
        raise
    except PTJobError as error:
        raise OutputsNotVerified(str(error)) from error


def _name(job: Manifest) -> str:
    return pod_name(job["metadata"]["name"], secrets.token_hex(3))


async def _answer(
    client: Client, manifest: Manifest, read: Callable[[str], T | None], options: ProbeOptions
) -> tuple[T, Manifest]:
    """Create the pod, wait for its end, and return its answer, parsed from its log by `read`, and the ended pod."""
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    why = partial(obstacle, options=options)
    async with running(client, manifest, has_ended, seconds=options.timeout, obstacle=why, tell=logger.info) as pod:
        if pod["status"]["phase"] == "Succeeded":
            try:
                async with asyncio.timeout(options.timeout):
                    answer = await _read(client, paths.pod_log(namespace, name), read)
            except TimeoutError:
                late = f"its log could not be read within {options.timeout:g} s"
                raise OutputsNotVerified(f"the pod {namespace}/{name} has ended, but {late}") from None
            if answer is not None:
                return answer, pod
        raise OutputsNotVerified(f"the pod {namespace}/{name} {why(pod, ())}")


async def _read(client: Client, path: str, read: Callable[[str], T | None]) -> T | None:
    """Return the answer in the log at this path; None if it has none."""
    for left in reversed(range(_LOG_READS)):
        try:
            async with client.stream(path, silence=_SILENCE) as chunks:
                log = b"".join([chunk async for chunk in chunks])
            if answer := read(log.decode("utf-8", "replace")):
                return answer
        except ClusterUnavailable:
            if not left:
                raise
        await asyncio.sleep(_PAUSE)
    return None
