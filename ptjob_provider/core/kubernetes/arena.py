"""Create the ConfigMap that `arena delete` and `arena prune` need besides a job's labels: it lists what to delete.

Arena's other commands (list, get, logs, top job) use labels, see `identity.owner_labels`. The job owns the ConfigMap.
Creating it is not part of submitting: a failure, such as a missing permission, is only logged.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes.client import paths

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.client.http import Client

logger = logging.getLogger(__name__)

_TIMEOUT = 5.0
"""Time limit in seconds; the job runs meanwhile."""


async def let_arena_delete(client: Client, ref: JobRef) -> None:
    """Create the ConfigMap if permitted; idempotent."""
    if ref.kind != PYTORCHJOB.KIND:
        return
    try:
        async with asyncio.timeout(_TIMEOUT):
            await client.post(paths.config_maps(ref.namespace), config_map(ref))
    except (PTJobError, TimeoutError) as error:
        logger.info("%s: `arena delete` will not find it, which `ptjob delete` and kubectl do: %s", ref, error)


def config_map(ref: JobRef) -> Manifest:
    """Return the ConfigMap from which Arena reads a job's objects."""
    owner = {"apiVersion": PYTORCHJOB.API_VERSION, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{ref.name}-pytorchjob",
            "namespace": ref.namespace,
            "labels": {"createdBy": "arena"},
            "ownerReferences": [owner],
        },
        "data": {"app": f"pytorchjob.kubeflow.org/{ref.name}"},  # one line per object; an empty one is an error
    }
