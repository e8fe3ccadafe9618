"""A step's pod that is in no cluster, and says so in its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kubernetes import ClusterConfig, OwnPod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.errors import ClusterError
    from ptjob_provider.core.identity import Manifest, Reference

RUN: Reference = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "name": "run-1",
    "uid": "uid-run",
    "blockOwnerDeletion": False,
}


@dataclass(frozen=True, kw_only=True)
class PodStandIn(OwnPod):
    """Knows what a real one asks its cluster.

    Attributes:
        run: what controls it.
        refuses: what it is answered instead.
        noted: on all pods of the test, by whose it is.
        number: which try Argo says that it is.
    """

    run: Reference | None = None
    refuses: ClusterError | None = None
    noted: dict[str, list[str]] = field(default_factory=dict)
    number: int | None = None

    async def try_number(self) -> int | None:
        """Return what the test says."""
        return self.number

    async def controller(self) -> Reference | None:
        """Return what the test says."""
        if self.refuses:
            raise self.refuses
        return self.run

    async def note(self, whose: str, text: str) -> None:
        """Keep it."""
        if self.refuses:
            raise self.refuses
        self.noted.setdefault(whose, []).append(text)

    async def notes(self, whose: str) -> list[str]:
        """Return what was kept."""
        return self.noted.get(whose, [])

    async def replicas(self, namespace: str, labels: Mapping[str, str]) -> list[Manifest]:
        """Return none: nothing runs of jobs that are gone."""
        return []


def pod(uid: str, **more: Any) -> PodStandIn:
    """Return the pod with this uid; pods of one step have one name."""
    return PodStandIn(config=ClusterConfig(), namespace="team", name="run-step", uid=uid, **more)
