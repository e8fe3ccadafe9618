"""A table as one test: `each_row` in place of `pytest.mark.parametrize`, where no row leaves anything to the next."""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MOST = 600
"""Characters of a row, and of why it is wrong."""


def each_row(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a test try every row of a table, and fail once with all rows that are wrong.

    An AssertionError of the test is a wrong row; whatever else it raises ends it, with the row as a note. Decorators of
    this kind may stand above each other, and the test may ask for fixtures besides, which all rows share.
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
    """Return a row's values by their names; pytest.param(…) is a row, too."""
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
