"""PyTorchTrainingJob of `batch.tensorstack.dev/v1beta1`, as run by T9k's platform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds.pytorchtrainingjob.read import (
    HAS_FIXED_POD_NAMES,
    HAS_LABELLED_PODS,
    controllers,
    due_at,
    is_older,
    is_restarted,
    owner_of,
    pod_selector,
    priority,
    rank0_template,
    read_status,
    replica_named,
    replica_of,
    replicas,
    reported,
    running_since,
    runtime_of,
    templates,
)
from ptjob_provider.core.kinds.pytorchtrainingjob.render import API_VERSION, CONTAINER, KIND, OPERATOR, PLURAL, render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

STOP_RUNNING_PODS: Manifest | None = {"spec": {"runPolicy": {"cleanUpPolicy": "Unfinished"}}}

DELETION = "Foreground"


def converted_for(manifest: Manifest, _fields: frozenset[str]) -> Manifest:
    """Return the manifest: there is only one version."""
    return manifest


def stops_by_itself(job: Mapping[str, Any]) -> bool:
    """Return whether its policy makes the controller stop the remaining pods when the job ends."""
    return (job["spec"].get("runPolicy") or {}).get("cleanUpPolicy") in {"Unfinished", "All"}


def suspended(*, suspend: bool) -> Manifest:
    """Return the patch that suspends or resumes the job."""
    return {"spec": {"runMode": {"pause": {"enabled": suspend}}}}


def expiring(_job: Mapping[str, Any]) -> Manifest | None:
    """Return None: such a job has no TTL."""
    return None


def expires(_job: Mapping[str, Any]) -> bool:
    """Return False: such a job has no TTL."""
    return False
