"""Apply training-operator's defaults to a job, as its reconciler sees it. Pure."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

ROLES = ("Master", "Worker")
"""Roles in the order of their ranks."""

CONTAINER = "pytorch"
"""Name of the training container, by the kind's rule."""


def defaulted(job: Mapping[str, Any]) -> Manifest:
    """Return a copy with the operator's defaults; roles are in the order of their ranks."""
    full = deepcopy(dict(job))
    spec = full["spec"]
    given = {name.lower(): replica for name, replica in spec["pytorchReplicaSpecs"].items()}
    spec["pytorchReplicaSpecs"] = {role: given[role.lower()] for role in ROLES if role.lower() in given}
    for replica in spec["pytorchReplicaSpecs"].values():
        _set(replica, "replicas", 1)
        _set(replica, "restartPolicy", "OnFailure")
    run_policy = spec["runPolicy"] = spec.get("runPolicy") or {}
    _set(run_policy, "cleanPodPolicy", "None")
    _set_elastic(spec)
    return full


def _set_elastic(spec: dict[str, Any]) -> None:
    policy = spec.get("elasticPolicy")
    if policy is not None:
        workers = spec["pytorchReplicaSpecs"].get("Worker", {}).get("replicas", 1)
        fallback = next((policy[key] for key in ("minReplicas", "maxReplicas") if policy.get(key) is not None), workers)
        _set(policy, "minReplicas", fallback)
        _set(policy, "maxReplicas", fallback)
    if policy is None or policy.get("nProcPerNode") is None:
        _set(spec, "nprocPerNode", "auto")


def _set(fields: dict[str, Any], key: str, value: object) -> None:
    if fields.get(key) is None:
        fields[key] = value
