"""No regular expression over texts of programs and servers takes quadratic time: it runs in all jobs' event loop."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core import diagnosis, history

if TYPE_CHECKING:
    from collections.abc import Iterator

_REPEATS = {ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT}
_LENGTH, _TIMES = 2_000, 4
_MOST = 9.0
"""Time for a text of four times the length, by the time for the text: about 4 if it is linear, 16 if quadratic."""
_ALWAYS = ("A", "_", " ", "1", "a.", "1/", "a: ", "'", '"', "[", "://")
_MODULES = ("kinds.queue", "kubernetes.client.api_errors", "kubernetes.own_pod", "kubernetes.rights", "logs")


def _modules() -> Iterator[str]:
    for package in (diagnosis, history):
        yield from (each.name for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."))
    yield from (f"ptjob_provider.core.{name}" for name in _MODULES)


def _patterns_in(value: Any) -> Iterator[re.Pattern[str]]:
    for each in value if isinstance(value, tuple) else (value,):
        pattern = each if isinstance(each, re.Pattern) else getattr(each, "pattern", None)
        if isinstance(pattern, re.Pattern):
            yield pattern


PATTERNS = {
    pattern: f"{module.rpartition('.')[2]}.{name}"
    for module in _modules()
    for name, value in vars(importlib.import_module(module)).items()
    for pattern in _patterns_in(value)
    if name != "_TYPE"  # of a task's own argument
}


def _attacks(pattern: re.Pattern[str]) -> set[str]:
    """Return the texts whose repetition makes a search begin again and again: what precedes each unlimited repeat."""
    return {*_ALWAYS, *_starts(parser.parse(pattern.pattern, pattern.flags), "")}


def _starts(code: Any, before: str) -> Iterator[str]:
    for op, argument in code:
        if op in _REPEATS:
            if argument[1] is ops.MAXREPEAT:
                yield before + _example(argument[2])
            yield from _starts(argument[2], before)
        elif op is ops.SUBPATTERN:
            yield from _starts(argument[3], before)
        elif op is ops.BRANCH:
            for each in argument[1]:
                yield from _starts(each, before)
        before += _example([(op, argument)])


def _example(code: Any) -> str:
    """Return a text that the parsed expression matches."""
    text = ""
    for op, argument in code:
        if op is ops.LITERAL:
            text += chr(argument)
        elif op is ops.SUBPATTERN:
            text += _example(argument[3])
        elif op is ops.BRANCH:
            text += _example(argument[1][0])
        elif op in _REPEATS:
            text += _example(argument[2]) * max(argument[0], 1)
        elif op in {ops.IN, ops.ANY, ops.NOT_LITERAL}:
            one = compiler.compile(parser.SubPattern(parser.State(), [(op, argument)]))
            text += next(each for each in map(chr, range(0x7E, 0x1F, -1)) if one.match(each))
    return text


def _seconds(pattern: re.Pattern[str], text: str) -> float:
    """Return the least CPU time of some searches, in which the machine's other work shows least."""
    least = float("inf")
    for _ in range(3):
        begun = time.thread_time()
        pattern.search(text)
        least = min(least, time.thread_time() - begun)
    return least


def _growth(pattern: re.Pattern[str], attack: str) -> float:
    """Return by what factor the time grows; the least of some measurements, each of which may be disturbed."""
    short = attack * (_LENGTH // len(attack) + 1)
    return min(_seconds(pattern, short * _TIMES) / max(_seconds(pattern, short), 1e-6) for _ in range(3))


@pytest.mark.parametrize("pattern", PATTERNS, ids=PATTERNS.values())
def test_the_time_of_a_search_grows_at_most_with_the_text(pattern: re.Pattern[str]) -> None:
    growing = {attack: growth for attack in _attacks(pattern) if (growth := _growth(pattern, attack)) > _MOST}
    assert not growing
