"""What holds for a job of every kind, wherever it runs: asked for by fields, read by its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import JobNotFound
from ptjob_provider.core.status import JobPhase
from worlds import has_ended, is_running

if TYPE_CHECKING:
    from contract.kinded import Kinded
    from ptjob_provider.core.backend import Observation

SLEEPS = 'trap "exit 143" TERM; echo up; sleep 600 & wait'


def exits(seen: list[Observation], replica: str) -> set[int]:
    """Return the exit codes of a replica's training container that were observed."""
    found = set()
    for one in seen:
        kind = kinds.kind_of(one.job) if one.job else None
        for pod in one.pods:
            if kind is None or kind.replica_of(pod) != replica:
                continue
            states = [
                each[key] for each in pod["status"].get("containerStatuses", ()) for key in ("state", "lastState")
            ]
            found |= {state["terminated"]["exitCode"] for state in states if "terminated" in state}
    return found


WHO = 'echo "$RANK of $WORLD_SIZE"'


async def test_a_job_whose_replicas_succeed_has_succeeded(kinded: Kinded) -> None:
    """The first of the kind's replicas is rank 0, and its log can be read; its end is seen."""
    world = kinded.world
    ref, first, _ = await kinded.submit("ok", WHO)

    seen = await world.observe(ref, lambda one: has_ended(one) and bool(exits([one], first)))

    status = kinds.read_status(await world.backend.get(ref.kind, ref.namespace, ref.name))
    assert status.phase is JobPhase.SUCCEEDED
    assert status.finished_at is not None
    assert await world.text(ref, first) == ["0 of 2"]
    assert exits(seen, first) == {0}
    assert await world.gone(ref) < world.soon


async def test_the_end_of_the_replica_that_fails_is_seen(kinded: Kinded) -> None:
    """With its exit code and its log, whatever its operator then makes of it; the other one is told apart from it."""
    world = kinded.world
    ref, first, second = await kinded.submit("bad", f"{WHO}; [ $RANK = 1 ] && exit 3; {SLEEPS}")

    seen = await world.observe(ref, lambda one: exits([one], second) == {3})

    assert 3 not in exits(seen, first)
    assert (await world.line(ref, second, "of 2")).text == "1 of 2"


async def test_a_job_that_is_deleted_leaves_nothing_that_runs(kinded: Kinded) -> None:
    """Whoever watches sees it go, its log could be read until then, and its name is free."""
    world = kinded.world
    ref, first, second = await kinded.submit("gone", SLEEPS)
    for replica in (first, second):
        await world.line(ref, replica, "up")
    await world.observe(ref, lambda one: is_running(one, replicas=2))

    await world.backend.delete(ref)
    seen = await world.observe(ref, lambda one: one.job is None)

    assert seen[-1].job is None
    assert await world.gone(ref) < world.soon
    with pytest.raises(JobNotFound):
        await world.backend.get(ref.kind, ref.namespace, ref.name)


async def test_a_suspended_job_runs_when_it_is_resumed(kinded: Kinded) -> None:
    """It has no pods until then, and what it says afterwards is not misread."""
    world = kinded.world
    ref, first, _ = await kinded.submit("later", "echo trained", suspend=True)
    before = await world.observe(ref, lambda one: one.job and kinds.read_status(one.job).phase is JobPhase.SUSPENDED)

    await world.backend.patch(ref, kinds.named(ref.kind).suspended(suspend=False))
    seen = await world.observe(ref, has_ended)

    assert before[-1].pods == []
    assert kinds.read_status(seen[-1].job).phase is JobPhase.SUCCEEDED
    assert await world.text(ref, first) == ["trained"]
