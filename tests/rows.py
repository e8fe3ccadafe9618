"""A table in one test: `each_row` instead of `pytest.mark.parametrize`, for rows that do not affect each other."""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MOST = 600
"""Maximum number of characters of a row, and of its error."""


def each_row(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test for every row of a table, and fail once with all wrong rows.

    An AssertionError marks a row as wrong; any other exception ends the test, with the row as a note. These decorators
    can be stacked, and the test can use fixtures, which all rows share.
    """
    words = (names,) if isinstance(names, str) else names
    table = [_named(words, row) for row in rows]
    assert table, "the table has no rows"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def loop(*this: Any, **others: Any) -> None:
            wrong: list[str] = []
            for row in table:
                with _collecting(row, wrong):
                    test(*this, **others, **row)
            _check(wrong, len(table))

        @functools.wraps(test)
        async def loop_async(*this: Any, **others: Any) -> None:
            wrong: list[str] = []
            for row in table:
                with _collecting(row, wrong):
                    await test(*this, **others, **row)
            _check(wrong, len(table))

        made: Any = loop_async if inspect.iscoroutinefunction(test) else loop
        signature = inspect.signature(test)
        rest = [each for name, each in signature.parameters.items() if name not in words]
        made.__signature__ = signature.replace(parameters=rest)
        return made

    return decorate


def _named(names: tuple[str, ...], row: Any) -> dict[str, Any]:
    """Return the values of a row by name; pytest.param(…) is also a row."""
    values = row.values if hasattr(row, "marks") else row if len(names) > 1 else (row,)
    return dict(zip(names, values, strict=True))


@contextmanager
def _collecting(row: dict[str, Any], wrong: list[str]) -> Iterator[None]:
    try:
        yield
    except (AssertionError, pytest.fail.Exception) as error:
        wrong.append(f"{row!s:.{_MOST}}\n    {str(error) or type(error).__name__:.{_MOST}}")
    except Exception as error:
        error.add_note(f"row: {row!s:.{_MOST}}")
        raise


def _check(wrong: list[str], count: int) -> None:
    assert not wrong, "\n".join([f"{len(wrong)} of {count} rows are wrong:", *wrong])
