"""Create a job's Secret and the ConfigMap that Arena needs, and read the values of Secrets for masking them in logs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import JobAlreadyExists, JobNotFound, PermissionDenied, PTJobError
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kinds.code import in_pieces
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import shared_client

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.config import ClusterConfig

logger = logging.getLogger(__name__)

_ARENA_TIMEOUT = 5.0
"""Maximum seconds for the creation of the ConfigMap; the job runs meanwhile."""


async def ensure_secret(client: Client, ref: JobRef, secret: Manifest) -> None:
    """Create the job's Secret if missing; a large one is split into several Secrets.

    The kubelet does not start the job's containers before the Secret exists. An existing Secret of the name is an
    earlier try's, or of somebody who has read the name in the job: of its content, only code of the job's digests runs.

    Raises:
        PermissionDenied: the Secret may not be created.
    """
    for piece in in_pieces(secret):
        meta = {**piece["metadata"], "namespace": ref.namespace, "ownerReferences": [_owner(ref)]}
        with contextlib.suppress(JobAlreadyExists):
            await client.post(paths.secrets(ref.namespace), {**piece, "metadata": meta})


async def secret_values(config: ClusterConfig, job: Manifest) -> list[str]:
    """Return the values of the Secrets in a job's environment as text, without missing Secrets and undecodable bytes.

    Raises:
        ClusterError: a Secret may not be read.
    """
    values: list[str] = []
    async with shared_client(config) as client:
        for name, keys in kinds.secrets_in_env(job).items():
            try:
                secret = await client.get(paths.secrets(job["metadata"]["namespace"], name))
            except JobNotFound:
                continue
            data = secret.get("data") or {}
            encoded = [value for key, value in data.items() if keys is None or key in keys]
            values += [base64.b64decode(value).decode("utf-8", "ignore") for value in encoded]
    return values


async def let_arena_delete(client: Client, ref: JobRef) -> None:
    """Create the ConfigMap that `arena delete` and `arena prune` need. Idempotent.

    Arena's other commands (list, get, logs, top job) need only the job's labels, see `identity.owner_labels`. A failure
    is only logged and does not affect the job. A missing permission is usual, and `ptjob doctor` reports it.
    """
    if ref.kind != PYTORCHJOB.KIND:
        return
    try:
        async with asyncio.timeout(_ARENA_TIMEOUT):
            await client.post(paths.config_maps(ref.namespace), config_map(ref))
    except (PTJobError, TimeoutError) as error:
        level = logging.DEBUG if isinstance(error, PermissionDenied) else logging.INFO
        logger.log(level, "%s: `arena delete` will not find it, which `ptjob delete` and kubectl do: %s", ref, error)


def config_map(ref: JobRef) -> Manifest:
    """Return the ConfigMap in which Arena looks up the objects to delete with a job."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{ref.name}-pytorchjob",
            "namespace": ref.namespace,
            "labels": {"createdBy": "arena"},
            "ownerReferences": [_owner(ref)],
        },
        "data": {"app": f"pytorchjob.kubeflow.org/{ref.name}"},  # one line per object; Arena fails on an empty line
    }


def _owner(ref: JobRef) -> Manifest:
    return {"apiVersion": kinds.named(ref.kind).API_VERSION, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
