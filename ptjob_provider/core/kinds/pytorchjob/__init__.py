"""PyTorchJob of `kubeflow.org/v1`, as run by training-operator 1.4 to 1.9."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds import pod_template
from ptjob_provider.core.kinds.claims import MOUNT_ROOT
from ptjob_provider.core.kinds.kind import DEFAULT_NAMESPACE, Rendered, Replica
from ptjob_provider.core.kinds.kind import nothing_told as told
from ptjob_provider.core.kinds.pytorchjob.legacy import in_words_of, is_older
from ptjob_provider.core.kinds.pytorchjob.read import (
    HAS_FIXED_POD_NAMES,
    HAS_LABELLED_PODS,
    controllers,
    due_at,
    is_restarted,
    owner_of,
    pod_selector,
    priority,
    rank0,
    rank0_template,
    read_status,
    replica_named,
    replica_of,
    replicas,
    running_since,
    runtime_of,
    templates,
    total_gpus,
)
from ptjob_provider.core.kinds.pytorchjob.render import (
    DEFAULT_TTL,
    DELETION,
    STOP_RUNNING_PODS,
    expires,
    expiring,
    render,
    stops_by_itself,
    suspended,
)
from ptjob_provider.core.kinds.pytorchjob.validate import API_VERSION, CONTAINER, KIND, OPERATOR, PLURAL, validate
from ptjob_provider.core.manifest import dump_manifest as dump


def secrets_in_env(job: Mapping[str, Any]) -> dict[str, set[str] | None]:
    """Return the names of the Secrets that variables of any container come from, with the keys; None: all keys."""
    return pod_template.secrets_in_env(templates(job))


if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "API_VERSION",
    "CONTAINER",
    "DEFAULT_NAMESPACE",
    "DEFAULT_TTL",
    "DELETION",
    "HAS_FIXED_POD_NAMES",
    "HAS_LABELLED_PODS",
    "KIND",
    "MOUNT_ROOT",
    "OPERATOR",
    "PLURAL",
    "STOP_RUNNING_PODS",
    "Rendered",
    "Replica",
    "controllers",
    "due_at",
    "dump",
    "expires",
    "expiring",
    "in_words_of",
    "is_older",
    "is_restarted",
    "owner_of",
    "pod_selector",
    "priority",
    "rank0",
    "rank0_template",
    "read_status",
    "render",
    "replica_named",
    "replica_of",
    "replicas",
    "running_since",
    "runtime_of",
    "secrets_in_env",
    "stops_by_itself",
    "suspended",
    "templates",
    "told",
    "total_gpus",
    "validate",
]
