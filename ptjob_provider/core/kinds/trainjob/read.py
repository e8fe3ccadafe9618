"""Read a TrainJob: its status, replicas and pods. None of its three conditions shows that the job runs.

A pod's name is `JOB-node-0-INDEX-xxxxx`, and the pod that replaces it has the same index: the replica's name is all but
the last part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kinds.kind import Kind, PodOwner, Replica
from ptjob_provider.core.kinds.pod_template import count_gpus
from ptjob_provider.core.kinds.trainjob.render import (
    API_VERSION,
    CONTAINER,
    KIND,
    STEP,
    converted_for,
    lacking,
    render,
    runtime_of,
    template_of,
)
from ptjob_provider.core.status import JobPhase, JobStatus, parse_instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ptjob_provider.core.identity import Manifest

_DECISIONS = (
    ("Failed", JobPhase.FAILED),
    ("Complete", JobPhase.SUCCEEDED),
    ("Suspended", JobPhase.SUSPENDED),
)
"""Conditions and their phases; the first true condition decides. A resumed job keeps `Suspended`, with False."""

_DEADLINE = "DeadlineExceeded"
"""The only reason of `Failed` that stays beside `Complete`: the JobSet may complete while Trainer deletes it because of
the deadline. Trainer checks no deadline of a complete job. It sets `Failed` with another reason only after `Complete`,
and removes it again."""


_JOB = "jobset.sigs.k8s.io/jobset-name"
_STEP = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"


class TrainJob(Kind):
    """TrainJob of `trainer.kubeflow.org/v1alpha1`, as run by Kubeflow Trainer 2.0 to 2.3, on top of JobSet."""

    KIND = KIND
    API_VERSION = API_VERSION
    PLURAL = "trainjobs"
    OPERATOR = "Kubeflow Trainer"
    CONTAINER = CONTAINER
    HAS_LABELLED_PODS = False
    POD_LABEL = _JOB
    DELETION = "Background"
    """Not `Foreground`: Trainer recreates a JobSet that is deleted while its TrainJob still exists."""

    rendered = staticmethod(render)
    lacking = staticmethod(lacking)
    converted_for = staticmethod(converted_for)
    runtime_of = staticmethod(runtime_of)

    def read_status(self, job: Mapping[str, Any]) -> JobStatus:
        """Derive the job's status from its object.

        If no condition is true, the job is running while all pods of the runtime's job are ready or have succeeded, and
        pending otherwise, also in a crash loop. Its start, and that of its deadline, is when it was created or resumed.
        """
        status = job.get("status") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or []}
        true = {name: each for name, each in conditions.items() if each.get("status") == "True"}
        if "Complete" in true and true.get("Failed", {}).get("reason") != _DEADLINE:
            true.pop("Failed", None)
        name, phase = next((each for each in _DECISIONS if each[0] in true), ("", JobPhase.PENDING))
        if not name and _is_ready(status):
            phase = JobPhase.RUNNING
        deciding = true.get(name, {})
        created = job["metadata"].get("creationTimestamp")
        resumed = (conditions.get("Suspended") or {}).get("lastTransitionTime")
        started = created if "Suspended" not in conditions else resumed
        return JobStatus(
            phase=phase,
            reason=deciding.get("reason") or "",
            message=deciding.get("message") or "",
            created_at=parse_instant(created),
            started_at=parse_instant(started) if "Suspended" not in true else None,
            finished_at=parse_instant(deciding.get("lastTransitionTime")) if phase.is_terminal else None,
        )

    def replicas(self, manifest: Mapping[str, Any]) -> tuple[Replica, ...]:
        """Return all nodes of the job; one if the job leaves their number to the runtime."""
        name, trainer = manifest["metadata"]["name"], manifest["spec"].get("trainer") or {}
        template = template_of(manifest["spec"])
        gpus = count_gpus(template)
        return tuple(
            Replica(name=f"{name}-{STEP}-0-{index}", role=STEP, index=index, rank=index, gpus=gpus, template=template)
            for index in range(int(trainer.get("numNodes") or 1))
        )

    def suspended(self, *, suspend: bool) -> Manifest:
        """Return the patch that suspends or resumes the job."""
        return {"spec": {"suspend": suspend}}

    def owner_of(self, pod: Mapping[str, Any]) -> PodOwner:
        """Return the pod's job by its name only: the pod's owner is a Job of a JobSet."""
        return PodOwner(name=str(_labels(pod).get(_JOB) or ""))

    def replica_of(self, pod: Mapping[str, Any]) -> str:
        """Return the pod's replica name; a pod without an index is a replica of its own."""
        labels = _labels(pod)
        if not labels.get(_INDEX) or not labels.get(_JOB):
            return str(pod["metadata"]["name"])
        return "-".join([labels[_JOB], labels.get(_STEP) or STEP, labels.get(_JOB_INDEX) or "0", labels[_INDEX]])

    def replica_named(self, pod: str) -> str:
        """Return the replica's name: the pod's name without the random letters."""
        return pod.rpartition("-")[0] or pod

    def controllers(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the JobSet that Trainer creates and its Job, which creates the pods."""
        return (("JobSet", name), ("Job", f"{name}-{STEP}-0"))

    def priority(self, manifest: Mapping[str, Any]) -> str:
        """Return the pods' priority class, as far as the job changes the runtime's."""
        return str((self.rank0_template(manifest).get("spec") or {}).get("priorityClassName") or "")

    def templates(self, manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the only pod template, as far as the job changes the runtime's."""
        yield template_of(manifest["spec"])


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(
        each.get("name") == STEP and ((each.get("ready") or 0) > 0 or (each.get("succeeded") or 0) > 0)
        for each in status.get("jobsStatus") or ()
    )


_INDEX = "batch.kubernetes.io/job-completion-index"


def _labels(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    labels: Mapping[str, Any] = pod["metadata"].get("labels") or {}
    return labels
