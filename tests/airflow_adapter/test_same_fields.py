"""Test that the same arguments give the same job in a DAG and in a pipeline: see `tests/same_fields.py`."""

from __future__ import annotations

import pytest

from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.core.spec import JOB_FIELDS
from same_fields import FIELDS, arguments, expected, rendered


def test_every_field_has_a_value_of_its_own() -> None:
    """New fields are compared, too."""
    assert list(FIELDS) == list(JOB_FIELDS)


@pytest.mark.parametrize("field", FIELDS)
def test_the_operator_makes_the_same_job(field: str) -> None:
    operator = PyTorchJobOperator(task_id="train", **arguments(field))

    assert rendered(operator._job()) == expected(field)
