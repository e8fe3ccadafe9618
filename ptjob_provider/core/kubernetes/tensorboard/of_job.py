"""Create a job's TensorBoard: a Service and a Deployment that the job owns, created right after the job.

Not part of submitting: a failure is logged and the job trains without it. If only one node can mount the claim,
TensorBoard is deleted when the training ends: it would keep the claim from the next job, which may get another node. It
is also deleted with a job that has no TTL: it would run for ever.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
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
"""Seconds for the check, and again for the creation; the job trains meanwhile."""

_TAKEN = 10.0
"""Seconds to wait for an earlier job's objects to be deleted; less than the total, so that it can be reported."""

_UNDOING = 10.0
"""Seconds to roll back a partial creation."""

_PLACED = 5.0
"""Seconds to wait for a node, whose address works outside the cluster; without one the Service's name is used."""

_INTERVAL = 0.5


async def ensure_tensorboard(client: Client, ref: JobRef) -> str:
    """Create the job's TensorBoard if missing, and return its address; "" for none. Idempotent.

    Rolls back on partial failure.
    """
    try:
        return await _ensure_or_delete(client, ref)
    except PermissionDenied as error:
        logger.warning("%s is without its TensorBoard: %s; see deploy/components/tensorboard", ref, error)
    except (PTJobError, TimeoutError) as error:
        logger.warning("%s is without its TensorBoard: %s", ref, str(error) or "it was not made in time")
    return ""


async def url_beside(client: Client, ref: JobRef) -> str:
    """Return the address of a TensorBoard that another client created for the job; "" if none is visible."""
    labels = objects.labels_of(ref.name)
    try:
        service = await client.get(paths.services(ref.namespace, objects.name_of(ref.name)))
        if not labels.items() <= (service["metadata"].get("labels") or {}).items():
            return ""
        return objects.url(service, await _node_now(client, ref))
    except JobNotFound:
        return ""
    except PTJobError as error:
        logger.info("%s: cannot check for a TensorBoard: %s", ref, error)
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
        if has_ended:  # a missing one would only repeat the reason
            why = f"it still has the claim {ref.namespace}/{plan.claim}, which one node can mount"
            return await _delete_ended(client, ref, plan, why) if held else plan.url
    return await _create_both(client, job, plan, held=held)


async def _create_both(client: Client, job: Manifest, plan: TensorBoardPlan, *, held: bool) -> str:
    """Create all objects, or none: one without an address would hold the claim unnoticed."""
    ref = JobRef.of(job)
    try:
        async with asyncio.timeout(_TIMEOUT):
            # Start with the Service, which has no pod: it may be refused where a Deployment is not.
            service = await _ensured(client, ref, paths.services(ref.namespace), objects.service(job, plan))
            wanted = objects.deployment(job, plan, is_held_by_one_node=held)
            await _ensured(client, ref, paths.deployments(ref.namespace), wanted)
            served = plan.served_at(objects.url(service, await _node(client, ref)))
            await _note(client, ref, served)
    except (PTJobError, TimeoutError):
        with suppress(PTJobError, TimeoutError):
            async with asyncio.timeout(_UNDOING):
                await _delete_both(client, ref)
        raise
    return served.url


async def _delete_ended(client: Client, ref: JobRef, plan: TensorBoardPlan, otherwise: str) -> str:
    """Delete the TensorBoard of an ended job; return its address if that fails.

    Also deletes one without an address: its creator may have been killed before annotating the job.

    Args:
        client: of the job's cluster.
        ref: the job.
        plan: the requested TensorBoard.
        otherwise: the consequence if it stays, as a clause.
    """
    try:
        await _delete_both(client, ref)
        if plan.url:
            await _note(client, ref, plan.served_at(""))
    except PTJobError as error:
        if plan.url or not isinstance(error, PermissionDenied):  # else reported at the start of the job
            logger.warning("%s: its TensorBoard could not be taken away: %s; %s", ref, error, otherwise)
        return plan.url
    return ""


async def _delete_both(client: Client, ref: JobRef) -> None:
    """Delete both objects of this job; those of another, or with a new uid, are kept."""
    name = objects.name_of(ref.name)
    for path in (paths.deployments(ref.namespace, name), paths.services(ref.namespace, name)):
        try:
            existing = await client.get(path)
            if _is_of(existing, ref):
                this = {"preconditions": {"uid": existing["metadata"]["uid"]}}
                await client.delete(path, {"propagationPolicy": "Background", **this})
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


async def _ensured(client: Client, ref: JobRef, path: str, wanted: Manifest) -> Manifest:
    """Create an object that the job owns if missing; wait until an earlier job's object of the same name is deleted."""
    whose = f"{path}/{wanted['metadata']['name']}"
    for _ in range(round(_TAKEN / _INTERVAL)):
        try:
            return await client.post(path, wanted)
        except JobAlreadyExists:
            with suppress(JobNotFound):
                existing = await client.get(whose)
                if _is_of(existing, ref):
                    return existing
        await asyncio.sleep(_INTERVAL)
    raise ClusterUnavailable(f"{ref}: {paths.described('GET', whose)}: it is there and is not this job's")


async def _node(client: Client, ref: JobRef) -> str:
    """Return the address of its node; "" if it has none soon."""
    for _ in range(round(_PLACED / _INTERVAL)):
        if address := await _node_now(client, ref):
            return address
        await asyncio.sleep(_INTERVAL)
    return ""


async def _node_now(client: Client, ref: JobRef) -> str:
    selector = ",".join(f"{key}={value}" for key, value in objects.labels_of(ref.name).items())
    pods = await client.items(paths.pods(ref.namespace), labelSelector=selector)
    return next((str(address) for pod in pods if (address := pod["status"].get("hostIP"))), "")
