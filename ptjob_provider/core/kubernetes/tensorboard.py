"""Having the TensorBoard beside a job: a Deployment and a Service that the job owns, made right after the job.

It is no part of submitting. Where it may not be made, or cannot be, that is said and the job trains without it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterUnavailable, JobAlreadyExists, JobNotFound, PermissionDenied, PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import pytorchtrainingjob
from ptjob_provider.core.kubernetes import companion, paths
from ptjob_provider.core.kubernetes.probe_pod import is_held_by_one_node
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client import Client

logger = logging.getLogger(__name__)

_TIMEOUT = 30.0
"""Seconds for all of it; the job trains meanwhile."""

_PLACED = 5.0
"""Seconds to wait for a node, whose address is the best one for people."""

_INTERVAL = 0.5


async def accompany(client: Client, ref: JobRef) -> str:
    """Have what the job asks for beside it, and return where it is reached; "" if it is not. Safe to repeat."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await _accompany(client, ref)
    except PermissionDenied as error:
        logger.warning("%s trains without a TensorBoard: %s; see docs/kubernetes-tensorboard-role.yaml", ref, error)
    except (PTJobError, TimeoutError) as error:
        logger.warning("%s trains without a TensorBoard: %s", ref, error or "it was not made in time")
    return ""


async def _accompany(client: Client, ref: JobRef) -> str:
    job = await client.get(paths.jobs(ref.kind, ref.namespace, ref.name))
    plan = TensorBoardPlan.of(job)
    if plan is None or JobRef.of(job) != ref or ref.kind == pytorchtrainingjob.KIND:
        return ""
    if plan.url:
        return plan.url
    claim = await client.get(paths.claims(ref.namespace, plan.claim))
    wanted = companion.deployment(job, plan, is_held_by_one_node=is_held_by_one_node(claim))
    await _ensured(client, ref, paths.deployments(ref.namespace), wanted)
    service = await _ensured(client, ref, paths.services(ref.namespace), companion.service(job, plan))
    found = plan.served_at(companion.url(service, await _node(client, ref)))
    change = {"metadata": {"uid": ref.uid, "annotations": found.annotation}}
    await client.patch(paths.jobs(ref.kind, ref.namespace, ref.name), change)
    return found.url


async def _ensured(client: Client, ref: JobRef, path: str, wanted: Manifest) -> Manifest:
    """Have an object that the job owns; that of an earlier job of the same name is waited for to go."""
    whose = f"{path}/{wanted['metadata']['name']}"
    waited = 0.0
    while waited < _TIMEOUT:
        try:
            return await client.post(path, wanted)
        except JobAlreadyExists:
            with suppress(JobNotFound):
                found = await client.get(whose)
                if ref.uid in [owner.get("uid") for owner in found["metadata"].get("ownerReferences") or ()]:
                    return found
        await asyncio.sleep(_INTERVAL)
        waited += _INTERVAL
    raise ClusterUnavailable(f"{ref}: {paths.described('GET', whose)}: it is there and is not this job's")


async def _node(client: Client, ref: JobRef) -> str:
    """Return the address of the node on which it runs; "" if it has none soon."""
    selector = ",".join(f"{key}={value}" for key, value in companion.labels_of(ref.name).items())
    waited = 0.0
    while waited < _PLACED:
        for pod in await client.items(paths.pods(ref.namespace), labelSelector=selector):
            if address := pod["status"].get("hostIP"):
                return str(address)
        await asyncio.sleep(_INTERVAL)
        waited += _INTERVAL
    return ""
