"""Property test of values in PostgreSQL's JSONB, in which Airflow keeps events, XComs and asset events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given

from core.odd_values import NUMBERS, ODD, OTHERS, TEXTS
from ptjob_provider.core.outgoing import outgoing

if TYPE_CHECKING:
    from collections.abc import Iterator

sa = pytest.importorskip("sqlalchemy")


@pytest.fixture(scope="module")
def connection(server: str) -> Iterator[Any]:
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        yield connection


@given(value=ODD)
@example(value=[*NUMBERS, *TEXTS, *OTHERS])
def test_every_value_is_stored_and_read_back(connection: Any, value: Any) -> None:
    left = outgoing(value)

    stored = connection.execute(sa.text("SELECT CAST(:value AS jsonb)"), {"value": json.dumps(left)}).scalar_one()

    assert as_floats(stored) == as_floats(left)


def as_floats(value: Any) -> Any:
    """Return the value with floats in place of integers: JSONB writes 3.602879701896397e+16 without its exponent."""
    return json.loads(json.dumps(value), parse_int=float)
