"""Create and delete a job's TensorBoard: a Service and a Deployment that the job owns.

They are created right after the job. A failure is only logged, and the job trains without a TensorBoard. TensorBoard is
deleted when the training ends in two cases: if only one node at a time can mount the claim, because the next job may
need the claim on another node; and if the job has no TTL, because TensorBoard would run until somebody deletes the job.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import (
    ClusterError,
    ClusterUnavailable,
    JobAlreadyExists,
    JobNotFound,
    PermissionDenied,
    PTJobError,
)
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import pytorchtrainingjob
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.probe import is_held_by_one_node
from ptjob_provider.core.kubernetes.tensorboard import objects
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client

logger = logging.getLogger(__name__)

_TIMEOUT = 30.0
"""Maximum seconds for reading the job and its claim, and again for creating the objects."""

_TAKEN = 10.0
"""Maximum seconds to wait until an earlier job's objects are deleted; less than `_TIMEOUT`, to report the cause."""

_UNDOING = 10.0
"""Maximum seconds for rolling back a partial creation."""

_PLACED = 5.0
"""Maximum seconds to wait for the pod's node, whose address works outside the cluster; then use the Service's name."""

_INTERVAL = 0.5


async def ensure_tensorboard(client: Client, ref: JobRef) -> str:
    """Create the job's TensorBoard if missing, and return its address; "" for none. Idempotent.

    Errors are logged. Deletes what was created if a later request fails, and the TensorBoard of an ended job.
    """
    try:
        return await _ensure_or_delete(client, ref)
    except (PTJobError, TimeoutError) as error:
        logger.warning("%s has no TensorBoard: %s", ref, str(error) or "it was not created in time")
    return ""


async def _ensure_or_delete(client: Client, ref: JobRef) -> str:
    async with asyncio.timeout(_TIMEOUT):
        job = await client.get(paths.jobs(ref.kind, ref.namespace, ref.name))
        plan = TensorBoardPlan.of(job)
        if plan is None or JobRef.of(job) != ref or ref.kind == pytorchtrainingjob.KIND:
            return ""
        has_ended = kinds.read_status(job).phase.is_terminal
        if has_ended and not kinds.kind_of(job).expires(job):
            return await _delete_ended(client, ref, plan, "nothing else ends it before somebody deletes the job")
        if plan.url and not has_ended:
            return plan.url
        held = is_held_by_one_node(await client.get(paths.claims(ref.namespace, plan.claim)))
        if has_ended:  # nothing is created for an ended job
            consequence = f"it still has the claim {ref.namespace}/{plan.claim}, which one node can mount"
            return await _delete_ended(client, ref, plan, consequence) if held else plan.url
    return await _create_both(client, job, plan, held=held)


async def _create_both(client: Client, job: Manifest, plan: TensorBoardPlan, *, held: bool) -> str:
    """Create both objects and note the address on the job, or delete them: unknown, they would hold the claim."""
    ref = JobRef.of(job)
    try:
        async with asyncio.timeout(_TIMEOUT):
            # Start with the Service, which has no pod: it may be refused where a Deployment is not.
            service = await _ensured(client, ref, paths.services(ref.namespace), objects.service(job, plan))
            deployment = objects.deployment(job, plan, is_held_by_one_node=held)
            await _ensured(client, ref, paths.deployments(ref.namespace), deployment)
            served = replace(plan, url=objects.url(service, await _wait_for_node(client, ref)))
            await _note(client, ref, served)
    except (PTJobError, TimeoutError):
        with suppress(PTJobError, TimeoutError):
            async with asyncio.timeout(_UNDOING):
                await _delete_both(client, ref)
        raise
    return served.url


async def _delete_ended(client: Client, ref: JobRef, plan: TensorBoardPlan, consequence: str) -> str:
    """Delete the TensorBoard of an ended job, and return ""; return its address if that fails.

    Also tried if the job has no address noted: the process that created the objects may have been killed before.

    Args:
        client: client of the job's cluster.
        ref: the job.
        plan: the requested TensorBoard.
        consequence: consequence if the TensorBoard stays, as a clause.
    """
    try:
        await _delete_both(client, ref)
        if plan.url:
            await _note(client, ref, replace(plan, url=""))
    except PTJobError as error:
        if plan.url or not isinstance(error, PermissionDenied):  # else the creation was refused and this was logged
            logger.warning("%s: its TensorBoard could not be taken away: %s; %s", ref, error, consequence)
        return plan.url
    return ""


async def _delete_both(client: Client, ref: JobRef) -> None:
    """Delete both objects, if this job owns them."""
    name = objects.name_of(ref.name)
    for path in (paths.deployments(ref.namespace, name), paths.services(ref.namespace, name)):
        try:
            existing = await client.get(path)
            if _is_of(existing, ref):
                same_uid = {"preconditions": {"uid": existing["metadata"]["uid"]}}
                await client.delete(path, {"propagationPolicy": "Background", **same_uid})
        except JobNotFound:
            continue
        except ClusterError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise


async def _note(client: Client, ref: JobRef, plan: TensorBoardPlan) -> None:
    change = {"metadata": {"uid": ref.uid, "annotations": plan.annotation}}
    await client.patch(paths.jobs(ref.kind, ref.namespace, ref.name), change)


def _is_of(owned: Manifest, ref: JobRef) -> bool:
    return ref.uid in [owner.get("uid") for owner in owned["metadata"].get("ownerReferences") or ()]


async def _ensured(client: Client, ref: JobRef, path: str, manifest: Manifest) -> Manifest:
    """Return the object, which is created if missing; first wait until an earlier job's object of its name is deleted.

    Raises:
        ClusterUnavailable: an object of the name still exists, and the job does not own it.
    """
    object_path = f"{path}/{manifest['metadata']['name']}"
    for _ in range(round(_TAKEN / _INTERVAL)):
        try:
            return await client.post(path, manifest)
        except JobAlreadyExists:
            with suppress(JobNotFound):
                existing = await client.get(object_path)
                if _is_of(existing, ref):
                    return existing
        await asyncio.sleep(_INTERVAL)
    raise ClusterUnavailable(f"{ref}: {paths.described('GET', object_path)}: it exists and belongs to another job")


async def _wait_for_node(client: Client, ref: JobRef) -> str:
    """Return the address of the TensorBoard pod's node; "" if the pod is not scheduled soon."""
    for _ in range(round(_PLACED / _INTERVAL)):
        if address := await _node_address(client, ref):
            return address
        await asyncio.sleep(_INTERVAL)
    return ""


async def _node_address(client: Client, ref: JobRef) -> str:
    selector = ",".join(f"{key}={value}" for key, value in objects.labels_of(ref.name).items())
    pods = await client.items(paths.pods(ref.namespace), labelSelector=selector)
    return next((str(address) for pod in pods if (address := pod["status"].get("hostIP"))), "")
