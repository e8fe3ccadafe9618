"""Read the Secrets of a job's environment for masking, and create the Secret that a job owns.

Until then the kubelet holds back the job's containers.
"""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.code.folder import check_travels
from ptjob_provider.core.errors import JobAlreadyExists, JobNotFound
from ptjob_provider.core.in_pod import unpack_code
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import shared_client

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.config import ClusterConfig


async def secret_values(config: ClusterConfig, job: Manifest) -> list[str]:
    """Return the text values of the Secrets; missing Secrets and binary values are left out.

    Raises:
        ClusterError: they may not be read.
    """
    values: list[str] = []
    async with shared_client(config) as client:
        for name, keys in kinds.secrets_in_env(job).items():
            try:
                secret = await client.get(paths.secrets(job["metadata"]["namespace"], name))
            except JobNotFound:
                continue
            data = secret.get("data") or {}
            values += [_text(value) for key, value in data.items() if keys is None or key in keys]
    return values


def _text(value: str) -> str:
    return base64.b64decode(value).decode("utf-8", "ignore")


def check_size(secret: Manifest) -> None:
    """Refuse a Secret with a folder that is too large for one.

    Raises:
        InvalidSpec: it is.
    """
    if unpack_code.ARCHIVE in secret["stringData"]:
        check_travels(secret["stringData"][unpack_code.ARCHIVE])


async def ensure_secret(client: Client, ref: JobRef, secret: Manifest) -> None:
    """Create the Secret, owned by the job, if missing; an existing one is the job's own, since its name is unguessable.

    Raises:
        PermissionDenied: it may not be created.
    """
    owner = {"apiVersion": kinds.named(ref.kind).API_VERSION, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    meta = {**secret["metadata"], "namespace": ref.namespace, "ownerReferences": [owner]}
    with contextlib.suppress(JobAlreadyExists):
        await client.post(paths.secrets(ref.namespace), {**secret, "metadata": meta})
