"""Test fifty fixed fault schedules, each with a real job: one job, every log line, the right outcome, few requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from faults.fault import Harm, Traffic
from faults.judgement import problems
from faults.report import line, story
from faults.schedule import Schedule, Story
from faults.trials import tried

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.boot import Cluster
    from faults.evidence import Evidence

SEEDS = range(1, 51)

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="session")
def trials(request: pytest.FixtureRequest, cluster: Cluster, tell: Callable[[str], None]) -> Mapping[int, Evidence]:
    """Run all schedules that this session selects, several at a time."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    seeds = {call.params["seed"] for call in calls if call is not None and "seed" in call.params}
    tell(f"trying {len(seeds)} fault schedules")
    return asyncio.run(_tried(cluster, sorted(seeds)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_survives_all_that_a_schedule_does_to_its_requests(trials: Mapping[int, Evidence], seed: int) -> None:
    evidence = trials[seed]

    found = problems(evidence)

    assert not found, f"{line(evidence, found)}\n{story(evidence)}"


def test_the_schedules_do_everything_that_can_be_done() -> None:
    schedules = [Schedule.draw(seed) for seed in SEEDS]

    assert {(each.harm, each.traffic) for schedule in schedules for each in schedule.faults} == {
        (harm, traffic) for harm in Harm for traffic in Traffic
    }
    assert {schedule.story for schedule in schedules} == {*Story}
    assert {each.refuses for schedule in schedules for each in schedule.outages} == {True, False}
    assert {each.keeps_cursor for schedule in schedules for each in schedule.stops} == {True, False}


def test_the_schedules_have_servers_that_refuse_and_forget() -> None:
    schedules = [Schedule.draw(seed) for seed in SEEDS]
    refusals = [each for schedule in schedules for each in schedule.refusals]
    restores = [schedule.restore for schedule in schedules if schedule.restore]

    assert {each.code for each in refusals} == {400, 401, 403}
    assert {each.page for each in refusals} == {each.resets for each in refusals} == {True, False}
    assert {schedule.lag.forgets for schedule in schedules if schedule.lag} == {True, False}
    assert {(each.drops, each.silent) for each in restores} == {(False, False), (True, False), (True, True)}
    assert {schedule.revocation.resets for schedule in schedules if schedule.revocation} == {True, False}
    assert any(schedule.other_after is not None for schedule in schedules)


async def _tried(cluster: Cluster, seeds: list[int]) -> dict[int, Evidence]:
    return {evidence.schedule.seed: evidence async for evidence in tried(cluster, seeds)}
