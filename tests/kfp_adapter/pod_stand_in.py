"""Stand-in for a step's pod, without a cluster."""

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
    """Returns preset answers instead of making requests.

    Attributes:
        run: The controller of the pod.
        refuses: Error that is raised instead of an answer.
        noted: Notes on all pods of the test, by author.
        number: Try number that Argo wrote on the pod.
    """

    run: Reference | None = None
    refuses: ClusterError | None = None
    noted: dict[str, list[str]] = field(default_factory=dict)
    number: int | None = None

    async def try_number(self) -> int | None:
        return self.number

    async def controller(self) -> Reference | None:
        if self.refuses:
            raise self.refuses
        return self.run

    async def note(self, whose: str, text: str) -> None:
        if self.refuses:
            raise self.refuses
        self.noted.setdefault(whose, []).append(text)

    async def notes(self, whose: str) -> list[str]:
        return self.noted.get(whose, [])

    async def replicas(self, namespace: str, labels: Mapping[str, str]) -> list[Manifest]:
        """Return no pods: nothing of deleted jobs still runs."""
        return []


def pod(uid: str, **more: Any) -> PodStandIn:
    """Return the pod with this uid; all pods of a step have the same name."""
    return PodStandIn(config=ClusterConfig(), namespace="team", name="run-step", uid=uid, **more)
