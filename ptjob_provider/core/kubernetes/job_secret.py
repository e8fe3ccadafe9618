"""Create the Secret that a job owns, right after the job: its owner must exist first.

Until then the kubelet holds back the job's containers.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import JobAlreadyExists
from ptjob_provider.core.kubernetes import paths

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.client import Client


async def ensure_secret(client: Client, ref: JobRef, secret: Manifest) -> None:
    """Create the Secret, owned by the job, if missing; an existing one is the job's own, since its name is unguessable.

    Raises:
        PermissionDenied: it may not be created.
    """
    owner = {"apiVersion": kinds.named(ref.kind).API_VERSION, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    meta = {**secret["metadata"], "namespace": ref.namespace, "ownerReferences": [owner]}
    with contextlib.suppress(JobAlreadyExists):
        await client.post(paths.secrets(ref.namespace), {**secret, "metadata": meta})
