"""Steps that are killed, terminated or deleted at random moments leave no live job; `make soak-kfp` runs a hundred."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kfp_cluster.strike import Moment, Schedule, Stroke, struck

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kfp_cluster.lab import Lab
    from kfp_cluster.strike import Outcome

SEEDS = range(15, 23)


@pytest.fixture(scope="session")
def outcomes(lab: Lab, tell: Callable[[str], None], request: pytest.FixtureRequest) -> Mapping[int, Outcome]:
    """Run all schedules that this session selects, several at a time."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    seeds = sorted({call.params["seed"] for call in calls if call is not None and "seed" in call.params})
    tell(f"striking {len(seeds)} steps")
    return {outcome.schedule.seed: outcome for outcome in struck(lab, seeds)}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_that_is_struck_leaves_no_live_job(outcomes: Mapping[int, Outcome], seed: int) -> None:
    """There is no second job either."""
    assert outcomes[seed].wrong == [], str(outcomes[seed])


def test_the_fixed_schedules_do_everything_that_can_be_done() -> None:
    """They include every fault at every kind of moment, and a step that is killed twice before it ends."""
    schedules = [Schedule.draw(seed) for seed in SEEDS]

    assert {stroke for schedule in schedules for stroke, _, _ in schedule.strokes} == {*Stroke}
    assert {moment for schedule in schedules for _, moment, _ in schedule.strokes} == {*Moment}
    assert {len(schedule.strokes) for schedule in schedules} == {1, 2, 3}
