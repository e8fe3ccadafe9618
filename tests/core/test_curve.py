"""Tests of the curve of a training: few points for any training, with its first and its newest one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from ptjob_provider.core.curve import MAX_POINTS, MAX_TAG, Curve, drawable
from ptjob_provider.core.training_progress import MAX_METRICS, Progress
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Iterable

BEGAN = datetime(2026, 11, 20, 10, tzinfo=UTC)


def state(second: float, step: int | None, **metrics: float) -> Progress:
    return Progress(step=step, at=(BEGAN + timedelta(seconds=second)).isoformat(), metrics=metrics, source="line")


def curve_of(states: Iterable[Progress]) -> Curve:
    curve = Curve()
    for each in states:
        curve.add(each)
    return curve


STATES = st.lists(
    st.builds(
        lambda second, step, metrics: Progress(
            step=step, at=(BEGAN + timedelta(seconds=second)).isoformat(), metrics=metrics
        ),
        st.integers(min_value=-(10**6), max_value=10**6),
        st.none() | st.integers(min_value=0, max_value=10**12 - 1),
        st.dictionaries(st.text(max_size=80), st.floats(allow_nan=False, allow_infinity=False), max_size=MAX_METRICS),
    ),
    min_size=1,
    max_size=60,
)


@given(states=STATES, most=st.integers(min_value=200, max_value=4000), repeated=st.integers(1, 20))
def test_a_curve_of_any_training_fits_and_has_its_first_and_newest_state(
    states: list[Progress], most: int, repeated: int
) -> None:
    columns = curve_of(states * repeated).to_dict(most=most)

    assert len(json.dumps(columns)) <= most
    lengths = {len(columns["step"]), len(columns["at"]), *(len(each) for each in columns["metrics"].values())}
    assert len(lengths) == 1
    assert lengths <= set(range(1, MAX_POINTS + 1))
    assert len(columns["metrics"]) <= MAX_METRICS
    assert all(len(tag) <= MAX_TAG for tag in columns["metrics"])
    assert (columns["step"][0], columns["step"][-1]) == (states[0].step, states[-1].step)


@given(steps=st.integers(min_value=1, max_value=5000), seconds=st.floats(min_value=0.01, max_value=3600))
def test_points_stay_in_order_and_evenly_apart(steps: int, seconds: float) -> None:
    columns = curve_of(state(number * seconds, number) for number in range(steps)).to_dict(most=10**6)

    kept = columns["step"]
    gaps = [after - before for before, after in pairwise(kept[:-1])]
    assert kept == sorted(set(kept))
    assert max(gaps, default=1) <= 3 * min(gaps, default=1)
    assert len(kept) >= min(steps, MAX_POINTS // 3)


@given(states=STATES)
def test_a_curve_that_was_written_goes_on_where_it_ended(states: list[Progress]) -> None:
    written = curve_of(states).to_dict()

    read = Curve.from_dict(json.loads(json.dumps(written)))
    assert read.to_dict() == written
    read.add(state(10**7, 10**13))
    assert read.to_dict()["step"][-1] == 10**13


def test_a_curve_that_goes_on_in_other_processes_stays_even() -> None:
    """A triggerer that takes over reads a thinned curve; what follows is as far apart as what it has read."""
    curve = Curve()
    for number in range(6000):
        if number % 1000 == 0:
            curve = Curve.from_dict(curve.to_dict(most=2000))
        curve.add(state(number, number, loss=1 / (number + 1)))

    kept = curve.to_dict(most=10**6)["step"]
    gaps = [after - before for before, after in pairwise(kept[:-1])]
    assert (kept[0], kept[-1]) == (0, 5999)
    assert max(gaps) <= 4 * min(gaps)


def test_metrics_of_one_step_are_of_one_point() -> None:
    """A bar's step comes before its metrics."""
    curve = curve_of([state(0, 1), state(1, 1, loss=0.25), state(2, 2, loss=0.25), state(3, 2, loss=0.125, lr=1e-5)])

    assert curve.to_dict() == {
        "step": [1, 2],
        "at": [(BEGAN + timedelta(seconds=second)).timestamp() for second in (1, 3)],
        "metrics": {"loss": [0.25, 0.125], "lr": [None, 1e-5]},
    }


@each_row(
    "written",
    [
        None,
        {},
        {"step": [1], "at": [], "metrics": {}},
        {"step": [1], "at": ["noon"], "metrics": {}},
        {"step": [1], "at": [1.0], "metrics": {"loss": ["low"]}},
        {"step": 1, "at": 1, "metrics": []},
        {"step": [], "at": [], "metrics": {"loss": []}},
    ],
)
def test_a_curve_that_cannot_be_read_is_empty(written: Any) -> None:
    assert Curve.from_dict(written).to_dict() == {"step": [], "at": [], "metrics": {}}


def test_curves_are_drawn_over_steps_the_losses_first() -> None:
    """One value makes no curve, and no axis shows 1e300 beside others."""
    states = [
        state(0, 1, lr=0.1, train_loss=2.0, once=1.0, big=1.0),
        state(9, 3, train_loss=1.0, big=1e300),
        state(10, 4, lr=0.2, big=2.0),
    ]

    unit, points = drawable(curve_of(states[:1]).to_dict())
    assert (unit, points) == ("step", {})
    unit, points = drawable(curve_of(states).to_dict())

    assert unit == "step"
    assert [*points.items()] == [
        ("train_loss", [(1, 2.0), (3, 1.0)]),
        ("lr", [(1, 0.1), (4, 0.2)]),
        ("big", [(1, 1.0), (4, 2.0)]),
    ]


@each_row("steps", [[1, 2, 1], [None, None, None], [None, 1, 2]])
def test_curves_of_steps_that_start_again_are_drawn_over_time(steps: list[int | None]) -> None:
    states = [state(10.0 * number, step, loss=number) for number, step in enumerate(steps)]

    assert drawable(curve_of(states).to_dict()) == ("second", {"loss": [(0.0, 0.0), (10.0, 1.0), (20.0, 2.0)]})
