"""PyTorchJob of `kubeflow.org/v1`, as run by training-operator 1.4 to 1.9."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds.kind import nothing_reported as reported
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
    API_VERSION,
    CONTAINER,
    DEFAULT_TTL,
    KIND,
    OPERATOR,
    PLURAL,
    converted_for,
    is_older,
    render,
    validate,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

STOP_RUNNING_PODS: Manifest | None = {"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}}
"""The operator's default leaves the other replicas of an ended job running (training-operator #1579)."""

DELETION = "Foreground"

_POLICIES_THAT_STOP = {"Running", "All"}


def stops_by_itself(job: Mapping[str, Any]) -> bool:
    """Return whether its policy makes the operator stop the remaining pods when the job ends."""
    return _policy_of(job).get("cleanPodPolicy") in _POLICIES_THAT_STOP


def suspended(*, suspend: bool) -> Manifest:
    """Return the patch that suspends or resumes the job."""
    return {"spec": {"runPolicy": {"suspend": suspend}}}


def expiring(job: Mapping[str, Any]) -> Manifest | None:
    """Return the patch that sets the default TTL on an ended job; None if it has one."""
    if expires(job):
        return None
    return {"spec": {"runPolicy": {"ttlSecondsAfterFinished": DEFAULT_TTL}}}


def expires(job: Mapping[str, Any]) -> bool:
    """Return whether the job has a TTL, after which its operator deletes it."""
    return _policy_of(job).get("ttlSecondsAfterFinished") is not None


def _policy_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the run policy, which the old operator's CRD has at the top of the spec."""
    policy: Mapping[str, Any] = job["spec"].get("runPolicy") or job["spec"]
    return policy
