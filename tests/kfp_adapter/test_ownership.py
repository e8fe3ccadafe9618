"""Tests of the owner references of a step's job, and of its deletion when the step is terminated."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ScriptedBackend, finished
from kfp_adapter.pod_stand_in import RUN, pod
from kfp_adapter.tries import FIRST, SECOND, Try
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.errors import ClusterUnavailable, PermissionDenied
from ptjob_provider.core.identity import JobRef
from ptjob_provider.kfp import termination
from ptjob_provider.kfp.termination import StepTermination, Terminated
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.kubernetes import OwnPod

REF = JobRef(kind="PyTorchJob", namespace="team", name="digits-1", uid="uid-1")


def owners(backend: ScriptedBackend) -> list[dict[str, Any]]:
    """Return the owners of the only job."""
    (job,) = backend.jobs.values()
    return list(job["metadata"].get("ownerReferences") or [])


async def test_the_steps_pod_owns_the_job() -> None:
    """Kubernetes deletes the job when the run's pod is deleted, and the pod's deletion does not wait for it."""
    backend = ScriptedBackend()

    await Try(backend=backend).submit()

    (owner,) = owners(backend)
    assert (owner["kind"], owner["uid"], owner["blockOwnerDeletion"]) == ("Pod", "uid-a", False)


@each_row(("pod", "fields"), [(None, {}), (FIRST, {"namespace": "other"})])
async def test_without_a_pod_in_its_namespace_nothing_owns_the_job(pod: OwnPod | None, fields: dict[str, Any]) -> None:
    """Kubernetes would at once delete a job whose owner is in another namespace."""
    backend = ScriptedBackend()

    await Try(backend=backend, pod=pod, fields=fields).submit()

    assert owners(backend) == []


async def test_a_job_that_is_adopted_is_the_new_pods() -> None:
    """The old pod may be deleted at any moment; other owners are kept."""
    backend = ScriptedBackend()
    await Try(backend=backend).submit()
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "team", "uid": "uid-t"}
    (job,) = backend.jobs.values()
    job["metadata"]["ownerReferences"].append(other)

    assert (await Try(backend=backend, pod=SECOND).submit()).adopted

    owning = [change for change in backend.patches if "ownerReferences" in change["metadata"]]
    assert owning == [{"metadata": {"ownerReferences": [other, SECOND.as_owner]}}]


async def ended(trying: Try) -> list[dict[str, Any]]:
    """Let the job of a try succeed, and return its owners afterwards."""
    submission = await trying.submit()
    key = (submission.ref.namespace, submission.ref.name)
    trying.backend.jobs[key] = finished(trying.backend.jobs[key])
    trying.backend.worlds = [Observation(job=trying.backend.jobs[key])]
    await trying.training.until_end()
    patched = [change["metadata"].get("ownerReferences") for change in trying.backend.patches]
    return [owners for owners in patched if owners][-1]


async def test_a_job_that_has_ended_is_its_runs() -> None:
    """A person's retry deletes the pods of failed steps; the finished job outlives them, so the retry can report it."""
    assert await ended(Try(backend=ScriptedBackend())) == [RUN]


@each_row(
    ("own", "said"),
    [(pod("uid-a"), ""), (pod("uid-a", refuses=PermissionDenied("cannot get pods")), "is deleted with this pod")],
)
async def test_a_job_whose_run_is_unknown_stays_owned_by_the_pod(own: OwnPod, said: str) -> None:
    """The step does not fail; a missing permission is logged."""
    trying = Try(backend=ScriptedBackend(), pod=own)

    assert [owner["kind"] for owner in await ended(trying)] == ["Pod"]
    assert said in trying.output.getvalue()


async def terminated(backend: ScriptedBackend, *, knows: bool) -> Terminated:
    """Terminate a step that waits for its job."""
    stops = StepTermination(backend)
    if knows:
        stops.knows(REF)
    asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
    with pytest.raises(Terminated) as raised:
        await stops.run(asyncio.sleep(60))
    return raised.value


async def test_the_deletion_is_the_first_thing() -> None:
    backend = ScriptedBackend()

    stopped = await terminated(backend, knows=True)

    assert backend.deleted == [REF]
    assert str(stopped) == "team/digits-1 was deleted"


async def test_a_step_that_does_not_know_its_job_yet_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner reference takes care of the job."""
    monkeypatch.setattr(termination, "_CREATE_GRACE", 0.05)  # the real half second is long for a test
    backend = ScriptedBackend()

    stopped = await terminated(backend, knows=False)

    assert backend.deleted == []
    assert "not known" in str(stopped)


async def test_a_deletion_that_is_refused_is_no_success() -> None:
    backend = ScriptedBackend()
    backend.refusals["delete"] = [ClusterUnavailable("no answer")]

    assert "not known" in str(await terminated(backend, knows=True))
