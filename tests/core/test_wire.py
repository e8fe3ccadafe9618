"""Tests of converting a Kubernetes client's objects to API fields; the stand-ins look like both clients' models."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest

from ptjob_provider.core.wire import is_model, to_wire
from rows import each_row


class FakeModel:
    """A client's model with its attribute map."""

    attribute_map: ClassVar[dict[str, str]] = {"claim_name": "claimName", "read_only": "readOnly", "items": "items"}
    openapi_types: ClassVar[dict[str, str]] = dict.fromkeys(attribute_map, "object")

    def __init__(self, **values: Any) -> None:
        for name in self.openapi_types:
            setattr(self, name, values.get(name))


def test_a_model_becomes_a_map_of_what_is_set() -> None:
    """In camelCase; False and empty values are set, None is not."""
    assert to_wire(FakeModel(claim_name="data", read_only=False, items=[])) == {
        "claimName": "data",
        "readOnly": False,
        "items": [],
    }


def test_models_are_found_at_any_depth() -> None:
    """In maps and lists, and in models; the keys of a map are the user's."""
    value = {"a_b": [FakeModel(items=[FakeModel(claim_name="x"), {"c_d": FakeModel(claim_name="y"), "e": None}])]}

    assert to_wire(value) == {"a_b": [{"items": [{"claimName": "x"}, {"c_d": {"claimName": "y"}}]}]}


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (datetime(2026, 11, 21, 5, 0, tzinfo=UTC), "2026-11-21T05:00:00Z"),
        (datetime(2026, 11, 21, 5, 0, 0, 250000, tzinfo=timezone(timedelta(hours=1))), "2026-11-21T04:00:00.250000Z"),
        (datetime(2026, 11, 21, 5, 0), "2026-11-21T05:00:00Z"),  # noqa: DTZ001 - a user may pass this
        (date(2026, 11, 21), "2026-11-21"),
    ],
)
def test_instants_of_a_model_are_rfc_3339(instant: date, text: str) -> None:
    """The API server reads this format."""
    assert to_wire(FakeModel(claim_name=instant)) == {"claimName": text}


@each_row("value", ["text", 5, None, timedelta(hours=1), datetime(2026, 1, 1, tzinfo=UTC), {1, 2}])
def test_a_value_that_is_no_model_is_not_converted(value: object) -> None:
    assert to_wire(value) == value


def test_a_converted_value_shares_no_object_with_its_source() -> None:
    given: dict[str, Any] = {"list": [1], "tuple": (1,)}

    found = to_wire(given)

    assert found == given
    assert found["list"] is not given["list"]


def test_a_class_is_no_model() -> None:
    assert is_model(FakeModel())
    assert not is_model(FakeModel)
