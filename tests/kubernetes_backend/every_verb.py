"""All that a job of any kind is asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cluster_world import PATIENCE
from fakes import MemoryStore
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.run.submit import ensure_submitted

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.kubernetes import KubernetesBackend
    from ptjob_provider.core.spec import TrainingJob

OWNER = Owner(instance="test", ids={"task": "other"}, labels={})
VERBS = ("create", "get", "list", "watch", "patch", "delete")


async def everything(backend: KubernetesBackend, ref: JobRef, another: TrainingJob) -> None:
    """Ask for all that a job is asked for."""
    await backend.get(ref.kind, ref.namespace, ref.name)
    await backend.list(ref.kind, ref.namespace, {})
    await backend.patch(ref, {"metadata": {"annotations": {"seen": "yes"}}})
    await ensure_submitted(backend, another, owner=OWNER, store=MemoryStore(), exact_name=True)
    watch = backend.watch(ref)
    try:
        async with asyncio.timeout(PATIENCE):
            await anext(watch)
    finally:
        await watch.aclose()
    await backend.delete(ref)
