"""Tests that a function trains with the values that its globals have at the call, wherever they were changed."""

from __future__ import annotations

import base64
import json
import pickle
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from function_modules import cells, loaded, notebook, run
from ptjob_provider.core.code.function import from_function
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path


CHANGED = {
    "in a with and a match": """
        import contextlib
        with contextlib.suppress(ValueError):
            A = 1
        match A:
            case 1: B = 5
        def train(): return [A, B]
    """,
    "by a function that binds it": """
        N = 0
        def begin():
            global N, MADE
            N, MADE = 1, 2
        begin()
        def helper(): return MADE
        def train(): return [N, helper()]
    """,
    "by a dictionary of the globals": """
        LR = 0.001
        globals()["LR"] = 0.1
        vars().update(NEW=[1])
        def train(): return [LR, NEW]
    """,
    "by a random number": "import random\nSEED = random.random()\ndef train(): return SEED",
    "below the function": "LR = 1\ndef train(): return LR\nLR = 2\nLR += 1",
    "on the line of an import": "import json; LR = [1]; LR.append(2)\ndef train(): return json.dumps(LR)",
    "after it was a default": "LR = 1\nLR = 2\ndef train(lr=LR, *, other=LR + 1): return [lr, other, LR]",
    "where a helper, a class and a decorator name it": """
        import dataclasses, functools
        A, B, C, D = (0,) * 4
        for A in range(2): pass
        for B in range(3): pass
        for C in range(4): pass
        for D in range(5): pass
        @dataclasses.dataclass
        class Config:
            a: int = A
            def b(self): return helper()
        def helper(): return B
        def times(n):
            def around(function):
                @functools.wraps(function)
                def wrapped(): return [function()] * n
                return wrapped
            return around
        @times(C)
        def train(config=Config()): return [config.a, config.b(), (lambda: D)()]
    """,
    "as a path": "from pathlib import Path\nPLACES = [Path('a')]\nPLACES[0] /= 'b'\ndef train(): return str(PLACES[0])",
    "as a logger": "import logging\nLOG = [logging.getLogger('a.b')]\ndef train(): return LOG[0].name",
    "as a date and a pattern": """
        import re
        from datetime import datetime, timedelta, timezone
        AT, WORD = datetime(2026, 1, 1, tzinfo=timezone.utc), re.compile("b+", re.I)
        for _ in range(2): AT += timedelta(days=1)
        def train(): return [AT.isoformat(), WORD.sub("c", "aBb")]
    """,
}


@each_row(("change", "text"), list(CHANGED.items()))
def test_a_function_trains_with_the_values_of_the_call(tmp_path: Path, change: str, text: str) -> None:
    """Whatever changed them before, in a file and in a notebook."""
    text = dedent(text)
    for train in (loaded(tmp_path, text).train, notebook(*cells(text))):
        source = from_function(train)
        assert run(source, tmp_path) == json.loads(json.dumps(train()))


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.binary().map(bytearray)
)
HASHABLE = st.recursive(
    SCALARS.filter(lambda each: not isinstance(each, bytearray)),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
DATA = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(HASHABLE, max_size=3)
        | st.frozensets(HASHABLE, max_size=3)
        | st.dictionaries(HASHABLE, inner, max_size=3)
    ),
    max_leaves=10,
)
CHANGES = [
    "NAME = new",
    "globals()['NAME'] = new",
    "NAME.append(new)",
    "NAME.extend([new, new])",
    "NAME.update({1: new})",
    "NAME[:] = [new, NAME]",
    "NAME.insert(0, NAME)",
    "NAME.clear()",
    "NAME.setdefault('self', NAME)",
    "NAME.add((1,))",
    "del NAME[0]",
    "NAME += NAME",
    "NAME *= 2",
    "OTHER = [NAME, NAME]",
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=DATA, new=DATA, changes=st.lists(st.sampled_from(CHANGES), max_size=4))
def test_plain_data_arrives_with_its_types_and_shared_parts(
    tmp_path: Path, value: Any, new: Any, changes: list[str]
) -> None:
    """Shared references and cycles are kept, between globals as well: a pickle of both is the same."""
    module = loaded(tmp_path, "NAME = OTHER = None\ndef train(): return [NAME, OTHER]\n")
    vars(module).update(NAME=value, new=new)
    for change in changes:
        try:
            exec(change, vars(module))  # noqa: S102 - this table's own text
        except (AttributeError, BufferError, TypeError, IndexError, KeyError, ValueError):  # not for this type
            continue

    found = pickle.loads(base64.b64decode(from_function(module.train).values))  # noqa: S301 - made here

    assert _described([found["NAME"], found["OTHER"]]) == _described([module.NAME, module.OTHER])  # type: ignore[attr-defined]


def _described(value: Any, seen: dict[int, int] | None = None) -> Any:
    """Return a text of a value with all types; a part that was already there is its number."""
    seen = {} if seen is None else seen
    if not isinstance(value, (list, tuple, dict, set, frozenset, bytearray)):
        return type(value), repr(value)
    if id(value) in seen and not isinstance(value, (tuple, frozenset)):
        return seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, dict):
        return dict, [(_described(key, seen), _described(item, seen)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(_described(each, {})) for each in value)
    return type(value), repr(value) if isinstance(value, bytearray) else [_described(each, seen) for each in value]
