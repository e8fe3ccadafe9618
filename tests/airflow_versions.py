"""Which promises of the tests an older Airflow cannot keep: marks and facts by version, each with its reason."""

from __future__ import annotations

import pytest

from ptjob_provider.airflow.compat import AIRFLOW

KEEPS_ATTEMPTS = AIRFLOW == (3, 3)
"""Older ones have no state store, 3.4 discards it on a clear: when the job is gone, attempts count from 1 again."""

SAYS_WHY_TRIGGERS_END = AIRFLOW >= (3, 3)
"""Older ones write nothing when a person's click ends a trigger, so the time from there on cannot be measured."""

KILLS_REASSIGNED_TRIGGERS = AIRFLOW == (3, 3)
"""Only 3.3 calls `on_kill` of a trigger that another triggerer has taken over; older ones end it, 3.4 drops it."""

HAS_PAGES_OF_EVENTS = AIRFLOW >= (3, 2)
"""Older ones are asked for all events of an asset at once."""

CONSTRAINTS = "airflow" if AIRFLOW == (3, 3) else f"airflow-{AIRFLOW[0]}.{AIRFLOW[1]}"
"""The file of `constraints/` that this Airflow comes from."""


def since(major: int, minor: int, what: str) -> pytest.MarkDecorator:
    """Return the mark of a test that needs a part of this or a newer Airflow."""
    return pytest.mark.skipif((major, minor) > AIRFLOW, reason=f"Airflow {major}.{minor} brings {what}")


HANDS_SIGTERM_ON = pytest.mark.skipif(
    AIRFLOW != (3, 3), reason="only Airflow 3.3 hands a worker's SIGTERM on to the task"
)
