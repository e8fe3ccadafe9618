"""PyTorchJob of `kubeflow.org/v1`, as training-operator 1.3 to 1.9 run it."""

from __future__ import annotations

from ptjob_provider.core.kinds.pytorchjob.claims import MOUNT_ROOT, mounts, resolve_outputs
from ptjob_provider.core.kinds.pytorchjob.conditions import due_at, read_status
from ptjob_provider.core.kinds.pytorchjob.overlay import API_VERSION, DEFAULT_TTL, KIND
from ptjob_provider.core.kinds.pytorchjob.rendering import DEFAULT_NAMESPACE, STOP_RUNNING_PODS, Rendered, render
from ptjob_provider.core.kinds.pytorchjob.replicas import (
    Replica,
    pod_selector,
    rank0,
    rank0_template,
    replicas,
    total_gpus,
)
from ptjob_provider.core.kinds.pytorchjob.secrets import secrets_in_env
from ptjob_provider.core.kinds.pytorchjob.validation import CONTAINER, validate
from ptjob_provider.core.manifest import dump_manifest as dump

__all__ = [
    "API_VERSION",
    "CONTAINER",
    "DEFAULT_NAMESPACE",
    "DEFAULT_TTL",
    "KIND",
    "MOUNT_ROOT",
    "STOP_RUNNING_PODS",
    "Rendered",
    "Replica",
    "due_at",
    "dump",
    "mounts",
    "pod_selector",
    "rank0",
    "rank0_template",
    "read_status",
    "render",
    "replicas",
    "resolve_outputs",
    "secrets_in_env",
    "total_gpus",
    "validate",
]
