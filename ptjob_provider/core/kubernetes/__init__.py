"""The port on a Kubernetes cluster: PyTorchJobs of the training-operator, over the API server and nothing else.

`backend` says what each verb of the port is in requests; `client` sends them; `world` watches what is followed;
`podlog` reads containers' logs. Importing the package loads none of them: `aiohttp` takes a third of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kubernetes.config import ClusterConfig

if TYPE_CHECKING:
    from ptjob_provider.core.kubernetes.backend import KubernetesBackend

__all__ = ["ClusterConfig", "KubernetesBackend"]


def __getattr__(name: str) -> Any:
    if name != "KubernetesBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.backend").KubernetesBackend
