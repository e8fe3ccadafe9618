"""A step that ends by an error before its job: the job runs on only where another try comes and adopts it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ScriptedBackend
from kfp_adapter.tries import SECOND, Try
from ptjob_provider.core.errors import ClusterUnavailable, PermissionDenied
from ptjob_provider.kfp.stopping import Stopping, ToldToStop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ptjob_provider.core.backend import Observation
    from ptjob_provider.core.identity import JobRef


class UnwatchableStandIn(ScriptedBackend):
    """Keeps jobs that nobody may look at while they run."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def watch(self, ref: JobRef) -> AsyncIterator[Observation]:
        raise self.error
        yield


@pytest.mark.parametrize(
    ("error", "retry", "kept"),
    [
        (ClusterUnavailable("no answer"), None, False),
        (ClusterUnavailable("no answer"), 0, True),
        (ClusterUnavailable("no answer"), 2, True),
        (PermissionDenied("cannot watch pods"), None, False),
        (PermissionDenied("cannot watch pods"), 0, False),
        (RuntimeError("a mistake of ours"), None, False),
        (RuntimeError("a mistake of ours"), 0, False),
    ],
)
def test_an_error_leaves_a_job_only_to_a_next_try(error: Exception, retry: int | None, *, kept: bool) -> None:
    """One that may go away, of a task that has retries; no other try would come for the job."""
    trying = Try(backend=UnwatchableStandIn(error), retry=retry)

    with pytest.raises(type(error), match=str(error)):
        asyncio.run(trying.training.until_end())

    assert trying.backend.created == 1
    assert bool(trying.backend.jobs) is kept
    assert ("was deleted: no further try" in trying.said.getvalue()) is not kept


def test_a_job_that_could_not_be_read_after_its_creation_does_not_stay() -> None:
    """Its name was known before it was created."""

    class ForgetfulStandIn(ScriptedBackend):
        async def get(self, kind: str, namespace: str, name: str) -> Any:
            if self.created and self.get_error:
                error, self.get_error = self.get_error, None
                raise error
            return await super().get(kind, namespace, name)

    trying = Try(backend=ForgetfulStandIn())
    trying.backend.get_error = ClusterUnavailable("no answer")

    with pytest.raises(ClusterUnavailable):
        asyncio.run(trying.training.until_end())

    assert (trying.backend.created, trying.backend.jobs) == (1, {})


def test_that_a_job_could_not_be_deleted_is_said() -> None:
    """Whoever reads the log knows where to look."""

    class StubbornStandIn(UnwatchableStandIn):
        async def delete(self, ref: JobRef) -> None:
            raise PermissionDenied(f"cannot delete {ref}")

    trying = Try(backend=StubbornStandIn(PermissionDenied("cannot watch pods")))

    with pytest.raises(PermissionDenied, match="watch"):
        asyncio.run(trying.training.until_end())

    assert "the job may still run and could not be deleted: cannot delete team/" in trying.said.getvalue()


async def test_a_job_that_cannot_be_taken_over_is_followed_all_the_same() -> None:
    """Hours of training are worth more than whose it is; the log says what it hangs on."""
    backend = ScriptedBackend()
    await Try(backend=backend).submit()
    backend.patch_error = PermissionDenied("cannot patch pytorchjobs")
    second = Try(backend=backend, pod=SECOND)

    assert (await second.submit()).adopted

    assert "goes with the pod of an earlier try" in second.said.getvalue()


async def test_a_job_is_deleted_also_while_its_tensorboard_is_made() -> None:
    """From the moment that it is known which one it is."""

    class SlowStandIn(ScriptedBackend):
        async def ensure_tensorboard(self, ref: JobRef) -> str:
            stopping.stop()
            await asyncio.Event().wait()
            return ""

    backend = SlowStandIn()
    stopping = Stopping(backend)

    with pytest.raises(ToldToStop, match="was deleted"):
        await stopping.run(
            Try(backend=backend, fields={"tfevents": "pvc://models/logs", "tensorboard": True}).submit(stopping)
        )

    assert (backend.created, backend.jobs) == (1, {})


async def test_a_job_is_deleted_also_while_it_is_taken_over() -> None:
    """From the moment that it is known which one it is."""

    class SlowStandIn(ScriptedBackend):
        async def patch(self, ref: JobRef, change: Any) -> None:
            stopping.stop()
            await asyncio.Event().wait()

    backend = SlowStandIn()
    first = await Try(backend=backend).submit()
    stopping = Stopping(backend)

    with pytest.raises(ToldToStop, match="was deleted"):
        await stopping.run(Try(backend=backend, pod=SECOND).submit(stopping))

    assert backend.deleted == [first.ref]
