"""Run jobs on Kubernetes: implements the back-end port and the inspector port with requests to the API server alone.

`backend` implements the back-end port and `inspector` the inspector port. `client` sends requests, `informer` watches
jobs and pods, `logs` reads the logs of containers, `owned` creates the objects that a job owns, and `own_pod` reads and
annotates the pod of this process. The modules are imported on first use: `aiohttp` takes a third of a second.
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
