"""Odd values for property tests: what programs can return, write into messages and log."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

from hypothesis import strategies as st


def nested(levels: int) -> list[Any]:
    """Return a list of lists; of a thousand levels, Python cannot even write it."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


NUMBERS = [
    312345678901234567890123456789012345678,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    10**4000,
    2**53 + 1,
]
TEXTS = ["\0", "a\0b", "\ud800", "\udfff", "\udc80\ud800", "\U0001f600", "\ufeff", "x" * 100_000, "\x1b[31m\x85"]
OTHERS = [
    math.nan,
    math.inf,
    -math.inf,
    -0.0,
    date(2026, 11, 27),
    datetime(2026, 11, 27, tzinfo=UTC),
    b"\xff",
    nested(300),
]

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, categories=None))
    | st.sampled_from([*NUMBERS, *TEXTS, *OTHERS])
)
KEYS = st.text(st.characters(codec=None, categories=None), max_size=5) | st.integers() | st.sampled_from(TEXTS[:5])
ODD = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=12,
)


def json_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Return JSON that every server can store, with these texts."""
    numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=10,
    )


def strict(name: str) -> float:
    """Refuse a constant, as every JSON parser but Python's does."""
    raise AssertionError(f"{name} is no JSON")
