"""The Kubernetes back-end: implements the port by requests to the API server alone.

`backend` maps the port's verbs to requests, `client` sends them, `informer` watches, `logs` reads containers' logs,
`owned` creates what a job owns, `own_pod` is the pod of this process, `inspector` implements the inspector port.
Importing the package loads none of them: `aiohttp` takes a third of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kubernetes.config import ClusterConfig

if TYPE_CHECKING:
    from ptjob_provider.core.kubernetes.backend import KubernetesBackend
    from ptjob_provider.core.kubernetes.inspector import ClusterInspector
    from ptjob_provider.core.kubernetes.own_pod import OwnPod
    from ptjob_provider.core.kubernetes.owned import secret_values

__all__ = ["ClusterConfig", "ClusterInspector", "KubernetesBackend", "OwnPod", "secret_values"]

_LAZY = {
    "ClusterInspector": "inspector",
    "KubernetesBackend": "backend",
    "OwnPod": "own_pod",
    "secret_values": "owned",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
