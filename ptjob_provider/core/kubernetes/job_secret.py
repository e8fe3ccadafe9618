"""The Secret that a job owns: made right after the job, because only then is there an owner to name.

Until it is there the kubelet lets the job's containers wait for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterUnavailable, JobAlreadyExists, JobNotFound
from ptjob_provider.core.kubernetes import paths

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.client import Client

_TIMEOUT = 60.0
_INTERVAL = 0.5


async def ensure_secret(client: Client, ref: JobRef, secret: Manifest) -> None:
    """Have the Secret, owned by the job; that of an earlier job of the same name is waited for to go.

    Raises:
        PermissionDenied: it may not be created, or not be looked at.
        ClusterUnavailable: an earlier job's does not go.
    """
    name = secret["metadata"]["name"]
    owner = {"apiVersion": kinds.named(ref.kind).API_VERSION, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    meta = {**secret["metadata"], "namespace": ref.namespace, "ownerReferences": [owner]}
    waited = 0.0
    while waited < _TIMEOUT:
        try:
            await client.post(paths.secrets(ref.namespace), {**secret, "metadata": meta})
        except JobAlreadyExists:
            if await _is_owned(client, ref, name):
                return
        else:
            return
        await asyncio.sleep(_INTERVAL)
        waited += _INTERVAL
    raise ClusterUnavailable(f"{ref}: a Secret {name} that is not this job's has been in its way for {waited:.0f} s")


async def _is_owned(client: Client, ref: JobRef, name: str) -> bool:
    try:
        found = await client.get(paths.secrets(ref.namespace, name))
    except JobNotFound:
        return False
    return ref.uid in [owner.get("uid") for owner in found["metadata"].get("ownerReferences") or ()]
