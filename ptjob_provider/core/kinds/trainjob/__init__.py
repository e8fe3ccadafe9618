"""TrainJob of `trainer.kubeflow.org/v1alpha1`, as run by Kubeflow Trainer 2.0 to 2.3, on top of JobSet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds.kind import nothing_reported as reported
from ptjob_provider.core.kinds.trainjob.read import (
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
    running_since,
    templates,
)
from ptjob_provider.core.kinds.trainjob.render import (
    API_VERSION,
    CONTAINER,
    KIND,
    PLURAL,
    converted_for,
    init_containers,
    render,
    runtime_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

STOP_RUNNING_PODS: Manifest | None = None

OPERATOR = "Kubeflow Trainer"

DELETION = "Background"
"""Not `Foreground`: Trainer recreates a JobSet that is deleted while its TrainJob still exists."""


def stops_by_itself(_job: Mapping[str, Any]) -> bool:
    """Return True: JobSet stops what still runs when a job of it fails or all succeed."""
    return True


def suspended(*, suspend: bool) -> Manifest:
    """Return the patch that suspends or resumes the job."""
    return {"spec": {"suspend": suspend}}


def expiring(_job: Mapping[str, Any]) -> Manifest | None:
    """Return None: a TrainJob has no TTL."""
    return None


def expires(_job: Mapping[str, Any]) -> bool:
    """Return False: a TrainJob has no TTL."""
    return False
