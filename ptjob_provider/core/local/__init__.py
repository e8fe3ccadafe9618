"""Local back-end: run jobs as processes of this machine, for development, tests and first steps. Linux only.

It runs one attempt of the manifest that a cluster takes, without restarts: `backend` checks and submits it, and one
`supervisor` process per job starts, watches and stops its replicas. The state on disk consists of Kubernetes objects,
so that the same code reads local jobs and cluster jobs.

Names are imported on first use, because the supervisor is a module of this package and must start in milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptjob_provider.core.local.backend import LocalBackend
    from ptjob_provider.core.local.config import LocalConfig, base_environment

__all__ = ["LocalBackend", "LocalConfig", "base_environment"]

_HOMES = {
    "LocalBackend": "backend",
    "LocalConfig": "config",
    "base_environment": "config",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
