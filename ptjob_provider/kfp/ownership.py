"""Who owns a job in the cluster, so that it goes when nobody waits for it, and its story when its run goes.

A job that runs is the step's pod's: when that goes, by whoever's hand, Kubernetes removes the job. A job that has ended
is what the next try reads what has happened from, and a person's retry deletes the pods of failed steps first: so it is
handed to whatever controls the pod, which is Argo's Workflow, the run.
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
    """Have an adopted job owned by this try's pod instead of the last one's, which may go at any moment."""
    try:
        await _have_owned(backend, ref, pod.as_owner)
    except ClusterError as error:  # better followed than lost
        log.notice(f"{ref} goes with the pod of an earlier try, for this one could not take it over: {error}")


async def hand_over(backend: Backend, ref: JobRef, pod: OwnPod, log: StepLog) -> None:
    """Have a job that has ended owned by the run, so that it outlives this try's pod; one that is gone stays gone."""
    try:
        run = await pod.controller()
        if run is not None:
            await _have_owned(backend, ref, run)
    except JobNotFound:
        return
    except ClusterError as error:
        log.notice(f"{ref} goes with this pod and not with its run, which could not be made its owner: {error}")


async def _have_owned(backend: Backend, ref: JobRef, owner: Reference) -> None:
    """Make this one an owner in place of any pod."""
    job = await backend.get(ref.kind, ref.namespace, ref.name)
    before = job["metadata"].get("ownerReferences") or ()
    others = [each for each in before if each["kind"] != "Pod" and each["uid"] != owner["uid"]]
    await backend.patch(ref, {"metadata": {"ownerReferences": [*others, owner]}})
