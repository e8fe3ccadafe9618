"""Tests of numbers in compiled pipelines, which become floats: they arrive as the author wrote them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.kfp.numbers import mark_of, marked, unmarked
from rows import each_row

TEXTS = st.text(st.characters(exclude_characters="<>"))
FLOATS = st.floats(allow_nan=False)
VALUES = st.recursive(
    TEXTS | FLOATS | st.integers() | st.integers(2**53 - 2, 2**53 + 2) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def arrived(compiled: Any) -> Any:
    """Return a value as the step receives it: all numbers are finite floats."""
    return json.loads(json.dumps(compiled, allow_nan=False), parse_int=float)


@given(VALUES)
def test_constants_arrive_as_they_were_written(value: Any) -> None:
    found = unmarked(arrived(marked(value)))

    assert found == value
    assert json.dumps(found) == json.dumps(value)


@each_row("value", [12, 12.0])
def test_a_pipelines_whole_number_is_one(value: Any) -> None:
    """It arrives as 12 on a cluster and as 12.0 where a pipeline runs on one machine."""
    mark = mark_of("value-1", "Integer")
    compiled = marked([mark, f"--epochs={mark}", {"n": mark}])

    assert unmarked(compiled, {"value-1": value}) == [12, "--epochs=12", {"n": 12}]


@each_row(("kind", "value", "text"), [("Float", 0.003, "0.003"), ("float", 1e-05, "1e-05")])
def test_a_pipelines_float_is_one(kind: str, value: Any, text: str) -> None:
    """Also a whole number, when it stands alone."""
    mark = mark_of("value-1", kind)

    assert unmarked([mark, f"--lr={mark}"], {"value-1": value}) == [float(value), f"--lr={text}"]
    assert repr(unmarked(mark, {"value-1": 2})) == "2.0"


@each_row(
    ("value", "alone", "text"),
    [
        ('say "hi"\n<ptjob-int 3>', 'say "hi"\n<ptjob-int 3>', 'say "hi"\n<ptjob-int 3>'),
        (True, True, "true"),
        ([1.0, "b"], [1, "b"], '[1, "b"]'),
        ({"a": 2.0}, {"a": 2}, '{"a": 2}'),
    ],
)
def test_another_value_of_a_pipeline_keeps_its_type_alone_and_is_text_within_a_text(
    value: Any, alone: Any, text: str
) -> None:
    mark, in_text = mark_of("value-1", "String"), mark_of("value-1", "String", in_text=True)
    given = {"value-1": value}

    assert unmarked([mark], given) == [alone]
    assert unmarked([in_text, f"a {in_text}"], given) == [text, f"a {text}"]


@each_row("value", [2**53, -(2**53), 2.0**53, 1e300, 2**64])
def test_a_pipelines_whole_number_that_may_have_been_rounded_is_refused(value: Any) -> None:
    """A number that the pipeline declares as a float is one."""
    for compiled in ([mark_of("value-1", "Integer")], {"n": [mark_of("value-1", "List")]}, [mark_of("value-1", "x")]):
        with pytest.raises(InvalidSpec, match="less than 2\\^53"):
            unmarked(compiled, {"value-1": value})

    assert unmarked([mark_of("value-1", "Float")], {"value-1": value}) == [float(value)]


@each_row("text", ["<ptjob-int one>", "<ptjob-float >", "<ptjob-value value-1>", "<ptjob-text 1>"])
def test_a_text_that_looks_like_a_mark_without_a_number_stays(text: str) -> None:
    assert unmarked(marked([text])) == [text]


def test_a_maps_key_is_a_text() -> None:
    """Also if the key is a pipeline's number."""
    assert unmarked({mark_of("value-1", "int"): 1}, {"value-1": 2.0}) == {"2": 1}


@each_row(
    ("declared", "value", "text"),
    [
        ("int", "gpu", "gpu"),
        ("float", "1.10", "1.10"),
        ("int", True, "true"),
    ],
)
def test_an_item_of_another_type_than_the_declared_one_keeps_its_value(declared: str, value: Any, text: str) -> None:
    """The declared type of all items of a loop, and of the parts of a map, is the type of the first one."""
    mark = mark_of("value-1", declared)

    assert unmarked([mark, f"a={mark}"], {"value-1": value}) == [value, f"a={text}"]
