"""The local back-end: jobs as processes of this machine, for development, tests and first steps. Linux only.

Runs the manifest, not our own fields: `backend` checks and submits it, one `supervisor` process per job plays the
training-operator, the scheduler and the kubelet, and the state on disk is wire objects, so that the same code reads
local jobs and cluster jobs.

Names are loaded on first use: the supervisor is a module of this package and must start in milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptjob_provider.core.local.backend import LocalBackend
    from ptjob_provider.core.local.config import ImageReplacement, LocalConfig, base_environment

__all__ = ["ImageReplacement", "LocalBackend", "LocalConfig", "base_environment"]

_HOMES = {
    "LocalBackend": "backend",
    "ImageReplacement": "config",
    "LocalConfig": "config",
    "base_environment": "config",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'config')}"), name)
