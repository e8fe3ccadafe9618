"""A step's pod that is in no cluster, and says so in its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core.kubernetes import ClusterConfig, OwnPod

if TYPE_CHECKING:
    from ptjob_provider.core.errors import ClusterError
    from ptjob_provider.core.identity import Reference

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
    """

    run: Reference | None = None
    refuses: ClusterError | None = None

    async def controller(self) -> Reference | None:
        """Return what the test says."""
        if self.refuses:
            raise self.refuses
        return self.run


def pod(uid: str, *, run: Reference | None = None, refuses: ClusterError | None = None) -> PodStandIn:
    """Return the pod with this uid; pods of one step have one name."""
    return PodStandIn(config=ClusterConfig(), namespace="team", name="run-step", uid=uid, run=run, refuses=refuses)
