"""Run the demonstration's jobs on a Kubernetes cluster with the training-operator, in a namespace with one claim."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from demo.folder import ROOT
from ptjob_provider.core.kubernetes import ClusterConfig, KubernetesBackend
from ptjob_provider.core.kubernetes.client import paths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest

CLAIM = "digits"
NAMESPACES = "/api/v1/namespaces"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster; implements `Place`.

    Attributes:
        kubeconfig: kubeconfig of a user who may create namespaces.
        image: the name of the DAG's image on the cluster.
        namespace: the namespace of this demonstration; it is created, and not deleted.
    """

    kubeconfig: Path
    image: str
    namespace: str
    command: str = "make demo-cluster"

    @property
    def title(self) -> str:
        """Return a short description of the place."""
        return f"as pods of a Kubernetes cluster, namespace {self.namespace}"

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the connection, and a pod mutation hook, because the image has another name on the cluster."""
        extra = {"kube_config_path": str(self.kubeconfig), "namespace": self.namespace}
        return {
            "AIRFLOW__PTJOB__BACKEND": "kubernetes",
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
            "PYTHONPATH": str(ROOT / "demo" / "cluster_settings"),
            "DEMO_DIGITS_IMAGE": self.image,
        }

    def backend(self) -> Backend:
        """Return the back-end of this cluster."""
        return KubernetesBackend(self._config)

    def prepare(self) -> None:
        """Create the namespace and an empty claim in it."""
        asyncio.run(self._prepare())

    def model(self, model: Mapping[str, Any]) -> tuple[str, str]:
        """Return the model's address, and that a pod has read the file from the claim."""
        return str(model["uri"]), "read by a pod from the claim"

    def curves(self, tfevents: Mapping[str, Any]) -> str:
        """Return the curves' address."""
        return str(tfevents["uri"])

    def tables(self) -> list[Table]:
        """Return a table of the existing pods."""
        table = Table(title="\npods", title_justify="left", box=None, header_style="dim")
        for column in ("pod", "node", "address", "phase"):
            table.add_column(column)
        for pod in asyncio.run(self._pods()):
            status = pod["status"]
            where = pod["spec"].get("nodeName", ""), status.get("podIP", "")
            table.add_row(pod["metadata"]["name"], *where, status["phase"])
        return [table]

    def hints(self) -> list[tuple[str, str]]:
        """Return commands to inspect the objects while the cluster is up."""
        kubectl = f"kubectl --kubeconfig {self.kubeconfig}"
        return [
            ("on the cluster", f"{kubectl} -n {self.namespace} get pods,pvc"),
            ("to remove it", f"{kubectl} delete namespace {self.namespace}"),
            ("to keep it up", "make cluster, before; make cluster-down, after"),
        ]

    @property
    def _config(self) -> ClusterConfig:
        return ClusterConfig(kube_config_path=str(self.kubeconfig))

    async def _prepare(self) -> None:
        from ptjob_provider.core.kubernetes.client.http import shared_client  # noqa: PLC0415 - takes over a second

        async with shared_client(self._config) as client:
            await client.post(NAMESPACES, {"metadata": {"name": self.namespace}})
            await client.post(paths.claims(self.namespace, ""), _claim())

    async def _pods(self) -> list[Manifest]:
        from ptjob_provider.core.kubernetes.client.http import shared_client  # noqa: PLC0415 - takes over a second

        async with shared_client(self._config) as client:
            return await client.items(paths.pods(self.namespace))


def _claim() -> Manifest:
    """Return a claim of the cluster's default storage class; jobs on several nodes would need ReadWriteMany."""
    return {
        "metadata": {"name": CLAIM},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
