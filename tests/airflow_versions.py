"""Differences between the supported versions of Airflow: marks and facts for tests, each with its reason."""

from __future__ import annotations

import pytest

from ptjob_provider.airflow.compat import AIRFLOW

KEEPS_ATTEMPTS = AIRFLOW == (3, 3)
"""Older versions have no state store and 3.4 discards it on a clear: attempts of a deleted job count from 1 again."""

HAS_TASK_STORE = AIRFLOW >= (3, 3)
"""Older versions count attempts from the jobs that are there: a killed worker's next try may begin at 1 again."""

KILLS_REASSIGNED_TRIGGERS = AIRFLOW == (3, 3)
"""Only 3.3 calls `on_kill` of a trigger that another triggerer has taken over; older versions end it, 3.4 drops it."""

HAS_PAGES_OF_EVENTS = AIRFLOW >= (3, 2)
"""Older versions return all events of an asset at once."""

OPENS_OWN_LINKS_IN_PLACE = AIRFLOW >= (3, 2)
"""Older versions open every operator's link in a tab of its own; newer ones only those to another server."""

CONSTRAINTS = "airflow" if AIRFLOW == (3, 3) else f"airflow-{AIRFLOW[0]}.{AIRFLOW[1]}"
"""The file in `constraints/` that this Airflow is installed from."""


def since(major: int, minor: int, what: str) -> pytest.MarkDecorator:
    """Return the mark of a test that needs a feature of this Airflow version or a newer one."""
    return pytest.mark.skipif((major, minor) > AIRFLOW, reason=f"Airflow {major}.{minor} brings {what}")


HANDS_SIGTERM_ON = pytest.mark.skipif(
    AIRFLOW != (3, 3), reason="only Airflow 3.3 hands a worker's SIGTERM on to the task"
)
