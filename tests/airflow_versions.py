"""Skip a test on an Airflow that lacks what it needs; each skip says what that is."""

from __future__ import annotations

import pytest

from ptjob_provider.airflow.compat import AIRFLOW


def since(major: int, minor: int, what: str) -> pytest.MarkDecorator:
    """Return the mark of a test that needs a part of this or a newer Airflow."""
    return pytest.mark.skipif((major, minor) > AIRFLOW, reason=f"Airflow {major}.{minor} brings {what}")
