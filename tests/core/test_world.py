"""What those who follow one job are told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes.board.world import World

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="u-1")


def job() -> Manifest:
    """Return a job that nothing has happened to."""
    return {
        "kind": "PyTorchJob",
        "metadata": {"name": "digits", "uid": "u-1"},
        "spec": {"pytorchReplicaSpecs": {}},
        "status": {},
    }


async def test_a_job_that_goes_while_its_last_state_is_looked_at_is_told_to_be_gone() -> None:
    """Whoever follows it hears of the end, however slowly it looks."""
    world = World(REF)
    world.show_job(job())
    observations = world.observations()
    first = await anext(observations)

    world.show_job(None)
    rest = [each async for each in observations]

    assert first.job is not None
    assert [each.job for each in rest] == [None]
