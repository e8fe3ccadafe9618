"""Owner references of a job: a running job is deleted with its step, and a finished job's history with its run.

The step's pod owns a running job: when the pod is deleted, Kubernetes deletes the job. The next try reads the history
of a job that has ended, but a person's retry first deletes the pods of failed steps. Therefore a finished job is passed
to the pod's controller: Argo's Workflow, the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError, JobNotFound

if TYPE_CHECKING:
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import JobRef, Reference
    from ptjob_provider.core.kubernetes import OwnPod
    from ptjob_provider.kfp.steplog import StepLog


async def take_over(backend: Backend, ref: JobRef, pod: OwnPod, log: StepLog) -> None:
    """Set this try's pod as owner of an adopted job, because the last try's pod may be deleted at any moment."""
    try:
        await _have_owned(backend, ref, pod.as_owner)
    except ClusterError as error:  # following the job matters more than its owner
        log.notice(f"{ref} goes with the pod of an earlier try, for this one could not take it over: {error}")


async def hand_over(backend: Backend, ref: JobRef, pod: OwnPod, log: StepLog) -> None:
    """Set the run as owner of a finished job, so that it outlives this try's pod; a deleted job is ignored."""
    try:
        run = await pod.controller()
        if run is not None:
            await _have_owned(backend, ref, run)
    except JobNotFound:
        return
    except ClusterError as error:
        log.notice(f"{ref} goes with this pod and not with its run, which could not be made its owner: {error}")


async def _have_owned(backend: Backend, ref: JobRef, owner: Reference) -> None:
    """Set this owner in place of any pod."""
    job = await backend.get(ref.kind, ref.namespace, ref.name)
    before = job["metadata"].get("ownerReferences") or ()
    others = [each for each in before if each["kind"] != "Pod" and each["uid"] != owner["uid"]]
    await backend.patch(ref, {"metadata": {"ownerReferences": [*others, owner]}})
