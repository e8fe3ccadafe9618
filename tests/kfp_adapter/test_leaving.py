"""Tests of steps that end with an error before their job does: the job keeps running."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ScriptedBackend, finished
from kfp_adapter.pod_stand_in import pod
from kfp_adapter.tries import SECOND, Try
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.errors import ClusterUnavailable, PermissionDenied
from ptjob_provider.core.spec import Installation
from ptjob_provider.kfp import step
from ptjob_provider.kfp.termination import StepTermination, Terminated
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.kfp.steplog import StepLog


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptjob_provider.core.run.api_errors._PAUSE", (0.01, 0.01))
    monkeypatch.setattr(step, "PAUSES", (0.0, 0.0))


@each_row("retry", [None, 0, 2])
@each_row(
    ("error", "patch_error", "said"),
    [
        (PermissionDenied("cannot watch pods"), None, "was left running"),
        (RuntimeError("a mistake of ours"), None, "was left running"),
        (PermissionDenied("cannot watch pods"), PermissionDenied("cannot patch"), "may still run (cannot patch). Look"),
    ],
)
def test_a_job_that_cannot_be_followed_runs_on_and_the_log_says_so(
    error: Exception, patch_error: PermissionDenied | None, said: str, retry: int | None
) -> None:
    """With or without retries: another try may adopt the job; otherwise it is deleted with the step's pod.

    The orphan search, which is Airflow's, is not named.
    """
    backend = ScriptedBackend()
    backend.refusals["watch"] = [error] * 100
    backend.patch_error = patch_error
    trying = Try(backend=backend, retry=retry, api_error_timeout=0.05)

    with pytest.raises((ClusterUnavailable, RuntimeError), match=str(error)):
        asyncio.run(trying.training.until_end())

    assert backend.created == 1
    assert backend.jobs
    assert said in trying.output.getvalue()


@each_row("unheard", ["list", "get"])
def test_a_job_that_runs_is_not_given_up_where_the_cluster_does_not_answer_for_a_moment(unheard: str) -> None:
    """The step retries by itself, so a training of many hours is adopted and not deleted."""
    backend = ScriptedBackend()
    first = asyncio.run(Try(backend=backend).submit())
    (job,) = backend.jobs.values()
    backend.worlds = [Observation(job=finished(job))]
    backend.refusals[unheard] = [ClusterUnavailable("no answer")] * 2

    second = Try(backend=backend, pod=SECOND)
    _, ref, _ = asyncio.run(second.training.until_end())

    assert (ref, backend.created, backend.deleted) == (first.ref, 1, [])
    assert second.output.getvalue().count("trying again in 0 s: no answer") == 2


@each_row(("retry", "number", "preferred"), [(1, None, None), (None, 1, None), (1, 1, "TrainJob")])
def test_earlier_tries_are_looked_for_until_that_is_allowed(
    retry: int | None, number: int | None, preferred: str | None
) -> None:
    """A job of an earlier try may be running; other kinds, which may be listed, have none. Argo may retry by itself."""
    made = preferred or "PyTorchJob"
    backend = ScriptedBackend()
    asyncio.run(Try(backend=backend, fields={"kind": made}).submit())
    backend.refusals[f"list {made}"] = [PermissionDenied(f"cannot list {made}s", code=403)]
    own, installation = pod("uid-b", number=number), Installation(kind=preferred)
    second = Try(backend=backend, pod=own, retry=retry, installation=installation)

    recalled = asyncio.run(second.training._earlier_tries())

    assert recalled.load() is not None
    assert "answered again" in second.output.getvalue()


async def test_a_job_that_cannot_be_taken_over_is_followed_all_the_same() -> None:
    """A long training matters more than its owner; the log names the pod that the job is deleted with."""
    backend = ScriptedBackend()
    await Try(backend=backend).submit()
    backend.patch_error = PermissionDenied("cannot patch pytorchjobs")
    second = Try(backend=backend, pod=SECOND)

    assert (await second.submit()).adopted

    assert "is deleted with the pod of an earlier try" in second.output.getvalue()


class StoppedBackend(ScriptedBackend):
    """Terminates the step while it creates a TensorBoard or patches a job."""

    termination: StepTermination

    async def ensure_tensorboard(self, ref: JobRef) -> str:
        self.termination.stop()
        await asyncio.Event().wait()
        return ""

    async def patch(self, ref: JobRef, change: Any) -> None:
        await self.ensure_tensorboard(ref)


@each_row("is_adopted", [True, False])
async def test_a_job_is_deleted_also_while_it_is_taken_over_or_gets_its_tensorboard(*, is_adopted: bool) -> None:
    backend = StoppedBackend()
    if is_adopted:
        await Try(backend=backend).submit()
    backend.termination = StepTermination(backend)
    tensorboard = {"tfevents": "pvc://models/logs", "tensorboard": True}
    trying = Try(backend=backend, pod=SECOND, fields={} if is_adopted else tensorboard)

    with pytest.raises(Terminated, match="was deleted"):
        await backend.termination.run(trying.submit(backend.termination))

    assert (backend.created, backend.jobs) == (1, {})


class SlowBackend(ScriptedBackend):
    """Terminates the step while it looks for earlier tries."""

    log: StepLog

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        self.log.when_unread()
        await asyncio.sleep(0.05)
        return await super().list(kind, namespace, labels)


@each_row("earlier", [0, 1])
async def test_a_step_that_is_told_to_stop_while_it_looks_for_earlier_tries_makes_no_job(earlier: int) -> None:
    """The job of an earlier try is deleted."""
    backend = SlowBackend()
    if earlier:
        await Try(backend=backend).submit()
    training = Try(backend=backend, pod=SECOND).training
    backend.log = training.log

    with pytest.raises(Terminated):
        await training.until_end()

    assert (backend.created, backend.jobs) == (earlier, {})


async def test_a_stop_that_the_work_sees_first_ends_the_step_as_terminated() -> None:
    """The signal comes with the answer to the last request before the creation."""
    loop = asyncio.get_running_loop()
    termination, answer = StepTermination(ScriptedBackend()), loop.create_future()

    async def work() -> None:
        await answer
        termination.before_create()

    loop.call_later(0.01, lambda: (termination.stop(), answer.set_result(None)))

    with pytest.raises(Terminated):
        await termination.run(work())
