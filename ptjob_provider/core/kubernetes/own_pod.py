"""The pod that this process runs in: what it owns, and who controls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core.kubernetes import paths
from ptjob_provider.core.kubernetes.client import lease

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Reference
    from ptjob_provider.core.kubernetes.config import ClusterConfig


@dataclass(frozen=True, kw_only=True)
class OwnPod:
    """A pod as its own process knows it.

    Attributes:
        config: how its cluster is reached.
        namespace: where it is.
        name: its name, which a later pod may have again.
        uid: its uid.
    """

    config: ClusterConfig
    namespace: str
    name: str
    uid: str

    @property
    def as_owner(self) -> Reference:
        """Return the pod as an owner of other objects that holds up no deletion of it."""
        return {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self.uid, "blockOwnerDeletion": False}

    async def controller(self) -> Reference | None:
        """Return what controls the pod, as an owner of other objects; None if nothing does.

        Raises:
            ClusterError: the pod cannot be read.
        """
        async with lease(self.config) as client:
            pod = await client.get(paths.pods(self.namespace, self.name))
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller"):
                return {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")} | {
                    "blockOwnerDeletion": False
                }
        return None
