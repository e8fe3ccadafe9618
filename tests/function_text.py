"""Make a function from source text for tests of its source: the text is not run, so it may import missing packages."""

from __future__ import annotations

import io
import linecache
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.code.function import from_function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ptjob_provider.core.code.function import FunctionSource


def from_text(text: str, name: str, *, file: str, **options: Any) -> FunctionSource:
    """Return the source of the last function with this name in a text that represents a file."""
    linecache.cache[file] = (len(text), None, io.StringIO(text).readlines(), file)
    *_, code = (each for each in _codes(compile(text, file, "exec", dont_inherit=True)) if each.co_name == name)
    closure = tuple(CellType() for _ in code.co_freevars)
    return from_function(FunctionType(code, {}, closure=closure), **options)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)
