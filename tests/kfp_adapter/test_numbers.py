"""Numbers arrive as their author wrote them, whatever a compiled pipeline makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptjob_provider.kfp.numbers import marked, unmarked

CHANNEL = "{{{{channel:task=;name=n;type={};}}}}"
SAFE = 2**53
TEXTS = st.text(st.characters(exclude_characters="<>"))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    TEXTS | FLOATS | st.integers(-SAFE, SAFE) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def arrived(compiled: Any, **values: str) -> Any:
    """Return what a step gets: all numbers are floats, and a pipeline's values are in the texts."""
    text = json.dumps(compiled)
    for kind, value in values.items():
        text = text.replace(CHANNEL.format(kind), value)
    return json.loads(text, parse_int=float)


@given(VALUES)
def test_constants_survive(value: Any) -> None:
    """Lists, maps and texts, whole floats and whole numbers."""
    found = unmarked(arrived(marked(value)))

    assert found == value
    assert json.dumps(found) == json.dumps(value)


@pytest.mark.parametrize("value", ["12", "12.0"])
def test_a_pipelines_whole_number_is_one(value: str) -> None:
    """On a cluster it arrives as 12, where a pipeline runs on one machine as 12.0."""
    channel = CHANNEL.format("Integer")
    compiled = marked([channel, f"--epochs={channel}", {"n": channel}])

    assert unmarked(arrived(compiled, Integer=value)) == [12, "--epochs=12", {"n": 12}]


@pytest.mark.parametrize(("kind", "value"), [("Float", "0.003"), ("float", "1e-05"), ("Float", "2")])
def test_a_pipelines_float_is_one_alone_and_its_text_elsewhere(kind: str, value: str) -> None:
    """Inside a text nothing is known of how it is to look."""
    channel = CHANNEL.format(kind)

    assert unmarked(arrived(marked([channel, f"--lr={channel}"]), **{kind: value})) == [float(value), f"--lr={value}"]


def test_other_values_of_a_pipeline_are_texts() -> None:
    """Switches and texts are left as they are."""
    channel = CHANNEL.format("Boolean")

    assert unmarked(arrived(marked([channel, f"a {channel}"]), Boolean="true")) == ["true", "a true"]


def test_a_large_number_of_a_loop_is_whole() -> None:
    """As kfp may write it."""
    assert unmarked(["<ptjob-int 1e+06>", "<ptjob-int -3.0>"]) == [1_000_000, -3]
