"""Test a dozen fixed schedules on a second cluster: whatever takes pods away, no attempt is lost or doubled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from preempted.judgement import problems, sentences
from preempted.schedule import By, Moment, Schedule, Style, Way
from preempted.trials import line, tried

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from preempted.trial import Evidence

SEEDS = range(284, 296)


@pytest.mark.timeout(3600)
def test_a_training_survives_whatever_takes_its_pods_away(own_cluster: Cluster) -> None:
    """No retry is used, no attempt is lost or doubled, and what is said about resume is what the program did."""
    seen = asyncio.run(_tried(own_cluster))

    failed = [line(evidence) for evidence in seen if problems(evidence)]
    assert not failed, "\n".join(failed)
    assert sum(map(sentences, seen)) > 0


def test_the_dozen_has_everything_that_can_be_done() -> None:
    schedules = [Schedule.draw(seed) for seed in SEEDS]
    strikes = [strike for schedule in schedules for strike in schedule.strikes]

    assert {strike.by for strike in strikes} == {*By}
    assert {(strike.by, strike.moment) for strike in strikes} >= {
        (by, moment) for by in (By.EVICTION, By.DELETION) for moment in Moment
    }
    assert {schedule.way for schedule in schedules} == {*Way}
    assert {schedule.style for schedule in schedules} == {*Style}
    assert {schedule.resumes for schedule in schedules} == {True, False}
    assert {schedule.successor_after is None for schedule in schedules} == {True, False}
    assert {strike.rank for strike in strikes} == {0, 1}


async def _tried(cluster: Cluster) -> list[Evidence]:
    return [evidence async for evidence in tried(cluster, SEEDS)]
