"""Check a function's arguments, and turn them into JSON from which the pod rebuilds them by type hints.

A value is accepted if the pod would get an equal one, which is tried here with the code that runs in the pod. A JSON
value is also accepted if the pod makes the type of the hint from it: a dataclass from a map, a date from a text.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import json
import types
import typing
from datetime import date
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.in_pod.run_function import hints_of, plain, rebuilt

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

_PLAIN = (str, int, float, bool, type(None), object)
_GENERIC = {
    *(list, tuple, dict, collections.abc.Sequence, collections.abc.Iterable),
    *(collections.abc.Mapping, collections.abc.MutableMapping),
}
_CLASSES = (enum.Enum, PurePath, date)
_ALLOWED = (
    "allowed: JSON values, tuples, pathlib paths, enumerations, dates and dataclasses, with a type hint that names them"
)


def check_hints(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments with type hints that have no JSON form; the values, such as XComs, may still be unknown.

    Raises:
        InvalidSpec: the function takes no such arguments, or a type hint has no JSON form.
    """
    hints = hints_of(inspect.unwrap(function))
    for name, _ in _given(function, args, kwargs):
        if not _is_supported(hints.get(name, Any), ()):
            hint = inspect.formatannotation(hints[name])
            raise InvalidSpec(
                f"function {function.__name__}: argument {name!r} of type {hint} is not allowed; {_ALLOWED}; pass the"
                " parts that it is made from, and make it in the function"
            )


def plain_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, late: Collection[str] = ()
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as JSON values, without the keyword arguments in `late`, whose values are not known yet.

    Raises:
        InvalidSpec: the function takes no such arguments, or the pod would get other values.
    """
    check_hints(function, args, kwargs)
    hints = hints_of(inspect.unwrap(function))
    for name, value in _given(function, args, kwargs):
        if name not in late and not _travels(hints.get(name, Any), value):
            raise InvalidSpec(
                f"function {function.__name__}: argument {name!r} with the value {value!r:.120} is not allowed;"
                f" {_ALLOWED}; add or correct the type hint of {name!r}, or pass a JSON value"
            )
    known = {name: each for name, each in kwargs.items() if name not in late}
    return [plain(each) for each in args], {name: plain(each) for name, each in known.items()}


def _given(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each argument's value with the name of its parameter."""
    signature = inspect.signature(function)
    try:
        signature.bind_partial(*args, **kwargs)  # names an unknown argument rather than the one that is then missing
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidSpec(f"function {function.__name__}: {error}; allowed: {signature}; correct the call") from None
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((name, each) for each in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            yield from ((name, each) for each in value.values())
        else:
            yield name, value


def _is_supported(hint: Any, above: tuple[Any, ...]) -> bool:
    """Return whether values of the type have a JSON form; `above` are the dataclasses around it."""
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (Any, typing.Literal) or origin in above:
        return True
    if origin in (typing.Union, types.UnionType) or origin in _GENERIC:
        return all(each is Ellipsis or _is_supported(each, above) for each in inner)
    if dataclasses.is_dataclass(origin):
        hints = hints_of(origin)
        return all(_is_supported(hints.get(each.name, Any), (*above, origin)) for each in dataclasses.fields(origin))
    if not isinstance(origin, type):
        return True  # a type variable or NewType: the value decides
    return origin in _PLAIN or issubclass(origin, (*_CLASSES, dict))


def _travels(hint: Any, value: Any) -> bool:
    """Return whether the pod gets an equal value, or makes the type of the hint from this JSON value."""
    try:
        as_json = json.loads(json.dumps(plain(value)))
        return _is_same(value, rebuilt(hint, as_json)) or _is_same(value, as_json)
    except (TypeError, ValueError):
        return False


def _is_same(value: Any, other: Any) -> bool:
    """Return whether both have the same types and are equal, with all of their parts; NaN equals NaN."""
    if not isinstance(value, type(other)):
        return False
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value) if each.init]
        return all(_is_same(getattr(value, name), getattr(other, name)) for name in names)
    if isinstance(value, dict):
        return all(_is_same(each, other[key]) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return all(_is_same(*pair) for pair in zip(value, other, strict=True))
    return bool(value == other or value != value)  # noqa: PLR0124 - NaN
