"""Make a function from source text for tests of its source: its imports are not run, so packages may be missing."""

from __future__ import annotations

import ast
import io
import linecache
from contextlib import suppress
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.code.function import from_function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ptjob_provider.core.code.function import FunctionSource


def from_text(text: str, name: str, *, file: str, **options: Any) -> FunctionSource:
    """Return the source of the last function with this name in a text that represents a file.

    Its globals are those that its assignments and loops give a value without the imports.
    """
    linecache.cache[file] = (len(text), None, io.StringIO(text).readlines(), file)
    *_, code = (each for each in _codes(compile(text, file, "exec", dont_inherit=True)) if each.co_name == name)
    closure = tuple(CellType() for _ in code.co_freevars)
    return from_function(FunctionType(code, _values(ast.parse(text)), closure=closure), **options)


def _values(tree: ast.Module) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.While, ast.If, ast.Try)):
            with suppress(Exception):
                exec(compile(ast.Module([node], []), "<values>", "exec"), values)  # noqa: S102 - a test's own text
    values.pop("__builtins__", None)
    return values


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)
