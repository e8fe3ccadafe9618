"""Tests of parsing limits, which operator, component and command line share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec.limits import given_limits


def test_limits_are_read_as_values_texts_and_timedeltas() -> None:
    """Kubeflow Pipelines passes strings, Airflow users write timedeltas; unset limits keep their defaults."""
    options = {"start_timeout": timedelta(minutes=2), "queue_timeout": "1.5", "crash_loop_limit": "", "other": 1}

    assert given_limits(options) == {"start_timeout": 120.0, "queue_timeout": 1.5}


@pytest.mark.parametrize("value", [True, "20m", 0, -1, float("nan"), float("inf"), 10**400, timedelta(0), []])
def test_a_limit_that_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"start_timeout: .* allowed: a number of seconds above 0, or a timedelta"):
        given_limits({"start_timeout": value})
