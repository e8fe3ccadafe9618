"""What `arena delete` and `arena prune` want of a job beside its labels: a ConfigMap that says what to delete.

Everything else of Arena (list, get, logs, top job) goes by labels, see `identity.owner_labels`. The ConfigMap is owned
by the job and goes with it. Creating it is no part of submitting: where the Role does not allow it, or nobody answers,
that is said and nothing else happens.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.kinds import pytorchjob
from ptjob_provider.core.kubernetes import paths

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.kubernetes.client import Client

logger = logging.getLogger(__name__)

_TIMEOUT = 5.0
"""Seconds; a job that runs does not wait for this."""


async def let_arena_delete(client: Client, ref: JobRef) -> None:
    """Have the ConfigMap, if it may be; safe to repeat."""
    if ref.kind != pytorchjob.KIND:
        return
    try:
        async with asyncio.timeout(_TIMEOUT):
            await client.post(paths.config_maps(ref.namespace), config_map(ref))
    except (PTJobError, TimeoutError) as error:
        logger.info("%s: `arena delete` will not find it, which `ptjob delete` and kubectl do: %s", ref, error)


def config_map(ref: JobRef) -> Manifest:
    """Return the ConfigMap in which Arena looks up what a job consists of."""
    owner = {"apiVersion": pytorchjob.API_VERSION, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{ref.name}-pytorchjob",
            "namespace": ref.namespace,
            "labels": {"createdBy": "arena"},
            "ownerReferences": [owner],
        },
        "data": {"app": f"pytorchjob.kubeflow.org/{ref.name}"},  # a line for each object; an empty one is an error
    }
