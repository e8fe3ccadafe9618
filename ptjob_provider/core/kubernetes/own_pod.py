"""Read the pod of this process and its controller, and exchange notes with the pods of other tries as annotations."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError, InvalidSpec
from ptjob_provider.core.identity import TRY_ANNOTATION, TRY_LABEL
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.pods import has_ended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest, Reference
    from ptjob_provider.core.kubernetes.config import ClusterConfig


_NODE_ANNOTATION = "workflows.argoproj.io/node-name"
_TRY_OF_NODE = re.compile(r"\((\d+)\)$")


@dataclass(frozen=True, kw_only=True)
class OwnPod:
    """The pod of this process.

    Attributes:
        config: access to the pod's cluster.
        namespace: namespace of the pod.
        name: name of the pod, which a later pod may have, too.
        uid: uid of the pod.
    """

    config: ClusterConfig
    namespace: str
    name: str
    uid: str

    @property
    def as_owner(self) -> Reference:
        """Return the pod as an owner reference that does not block its deletion."""
        return {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self.uid, "blockOwnerDeletion": False}

    async def try_number(self) -> int | None:
        """Return the number of this try, 0 for the first, if the step has retries in Argo Workflows; else None.

        Raises:
            ClusterError: the pod cannot be read.
        """
        match = _TRY_OF_NODE.search((await self._metadata()).get("annotations", {}).get(_NODE_ANNOTATION, ""))
        return int(match[1]) if match else None

    async def controller(self) -> Reference | None:
        """Return the pod's controller as an owner reference; None if there is none.

        Raises:
            ClusterError: the pod cannot be read.
        """
        for owner in (await self._metadata()).get("ownerReferences") or ():
            if owner.get("controller"):
                return {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")} | {
                    "blockOwnerDeletion": False
                }
        return None

    async def note(self, whose: str, text: str) -> None:
        """Write the outcome of this try as an annotation on the pod; `notes` reads it while the pod's object exists.

        Args:
            whose: label value that all tries of the same step have.
            text: text of the note; replaces an earlier note.

        Raises:
            ClusterError: the pod may not be changed, or is gone.
        """
        meta = {"uid": self.uid, "labels": {TRY_LABEL: whose}, "annotations": {TRY_ANNOTATION: text}}
        async with shared_client(self.config) as client:
            try:
                await client.patch(paths.pods(self.namespace, self.name), {"metadata": meta})
            except InvalidSpec as error:  # the server rejects the patch if the pod has another uid
                raise ClusterError(f"{self.namespace}/{self.name}: another pod has the name now") from error

    async def notes(self, whose: str) -> list[str]:
        """Return the notes on the pods with this label value.

        Raises:
            ClusterError: pods cannot be listed.
        """
        async with shared_client(self.config) as client:
            pods = await client.items(paths.pods(self.namespace), labelSelector=f"{TRY_LABEL}={whose}")
        return [(pod["metadata"].get("annotations") or {}).get(TRY_ANNOTATION, "") for pod in pods]

    async def replicas(self, namespace: str, labels: Mapping[str, str]) -> list[Manifest]:
        """Return the pods with these labels that have not ended, including those whose job is gone.

        Raises:
            ClusterError: pods cannot be listed.
        """
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        async with shared_client(self.config) as client:
            pods = await client.items(paths.pods(namespace), labelSelector=selector)
        return [pod for pod in pods if not has_ended(pod)]

    async def _metadata(self) -> Manifest:
        async with shared_client(self.config) as client:
            pod = await client.get(paths.pods(self.namespace, self.name))
        meta: Manifest = pod["metadata"]
        return meta
