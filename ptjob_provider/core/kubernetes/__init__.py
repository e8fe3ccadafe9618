"""The port on a Kubernetes cluster: PyTorchJobs of the training-operator, over the API server and nothing else.

`backend` says what each verb of the port is in requests; `client` sends them; `board` watches what is followed;
`podlog` reads containers' logs, `secrets` what must not be in them; `own_pod` is about the pod that asks, `site` about
what is around jobs. Importing the package loads none of them: `aiohttp` takes a third of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kubernetes.config import ClusterConfig

if TYPE_CHECKING:
    from ptjob_provider.core.kubernetes.backend import KubernetesBackend
    from ptjob_provider.core.kubernetes.own_pod import OwnPod
    from ptjob_provider.core.kubernetes.secrets import secret_values
    from ptjob_provider.core.kubernetes.site import ClusterSite

__all__ = ["ClusterConfig", "ClusterSite", "KubernetesBackend", "OwnPod", "secret_values"]

_LOADED_WHEN_ASKED_FOR = {
    "ClusterSite": "site",
    "KubernetesBackend": "backend",
    "OwnPod": "own_pod",
    "secret_values": "secrets",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_WHEN_ASKED_FOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LOADED_WHEN_ASKED_FOR[name]}"), name)
