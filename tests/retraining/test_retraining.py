"""Test of a short soak, fixed seed: twelve batches in a bucket, triggerers die and trainings fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.fixtures import skip_because
from retraining.scene import scene, unmet
from retraining.schedule import AFTER, BEFORE, SUCCESS, Schedule
from retraining.soak import Soak

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 20261141
COUNT = 12
FATES = (AFTER, BEFORE, SUCCESS)
"""Two fail, however few trainings there are."""

pytestmark = pytest.mark.timeout(1800)


def test_each_batch_is_new_in_one_successful_training_and_in_all_later_ones(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    if reason := unmet():
        skip_because(reason)
    schedule = Schedule.drawn(SEED, count=COUNT, seconds=60.0)
    with scene(tmp_path, fates=FATES, poll=3.0, tell=tell) as made:
        outcome = Soak(made, schedule, tell).run()

    report = "\n".join(outcome.lines())
    assert not outcome.wrong, report
    assert outcome.strikes >= 4, report
    assert outcome.fates[BEFORE] >= 1, report
    assert outcome.fates[AFTER] >= 1, report
    assert outcome.dropped >= COUNT
    assert len(outcome.told) == outcome.dropped, report
