"""A back-end under the contract together with a kind that it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster_world import GRACE
from ptjob_provider.core import kinds
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef
    from worlds import World

OWNER = Owner(instance="test", ids={"task": "contract"}, labels={})


@dataclass(frozen=True, kw_only=True)
class Kinded:
    """Jobs of one kind on one back-end."""

    world: World
    kind: str

    async def submit(self, name: str, script: str, **fields: Any) -> tuple[JobRef, str, str]:
        """Submit a job of two replicas that run a shell script; returns it and the names of both, rank 0 first."""
        given = {"name": name, "kind": self.kind, "namespace": self.world.namespace, "image": self.world.image}
        small = {"workers": 2, "shared_memory": False, "termination_grace_period_seconds": GRACE}
        job = TrainingJob.parse(**given, **small, command=["sh", "-c", script], **fields)
        rendered = kinds.named(self.kind).render(job, owner=OWNER, attempt=1, exact_name=True)
        first, second = (replica.name for replica in kinds.replicas(rendered.manifest))
        return await self.world.submit(rendered.manifest), first, second
