"""The Kubernetes back-end: implements the port by requests to the API server alone.

`backend` maps the port's verbs to requests, `client` sends them, `informer` watches, `logs` reads containers'
logs, `secrets` reads values to mask, `own_pod` handles the pod of this process, `site` implements the inspector port.
Importing the package loads none of them: `aiohttp` takes a third of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kubernetes.config import ClusterConfig

if TYPE_CHECKING:
    from ptjob_provider.core.kubernetes.backend import KubernetesBackend
    from ptjob_provider.core.kubernetes.inspector import ClusterSite
    from ptjob_provider.core.kubernetes.own_pod import OwnPod
    from ptjob_provider.core.kubernetes.secrets import secret_values

__all__ = ["ClusterConfig", "ClusterSite", "KubernetesBackend", "OwnPod", "secret_values"]

_LOADED_WHEN_ASKED_FOR = {
    "ClusterSite": "inspector",
    "KubernetesBackend": "backend",
    "OwnPod": "own_pod",
    "secret_values": "secrets",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_WHEN_ASKED_FOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LOADED_WHEN_ASKED_FOR[name]}"), name)
