"""PyTorchJob of `kubeflow.org/v1`, as run by training-operator 1.4 to 1.9."""

from __future__ import annotations

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
    rank0_template,
    read_status,
    replica_named,
    replica_of,
    replicas,
    running_since,
    runtime_of,
    templates,
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

__all__ = [
    "API_VERSION",
    "CONTAINER",
    "DEFAULT_TTL",
    "DELETION",
    "HAS_FIXED_POD_NAMES",
    "HAS_LABELLED_PODS",
    "KIND",
    "OPERATOR",
    "PLURAL",
    "STOP_RUNNING_PODS",
    "controllers",
    "due_at",
    "expires",
    "expiring",
    "in_words_of",
    "is_older",
    "is_restarted",
    "owner_of",
    "pod_selector",
    "priority",
    "rank0_template",
    "read_status",
    "render",
    "replica_named",
    "replica_of",
    "replicas",
    "running_since",
    "runtime_of",
    "stops_by_itself",
    "suspended",
    "templates",
    "told",
    "validate",
]
