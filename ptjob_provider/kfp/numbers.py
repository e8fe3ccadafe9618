"""Preserves types of values in a compiled pipeline, which stores every number as a float.

A pipeline's value inside a text, a list or a map becomes an input of its own, and a mark takes its place. kfp would
insert its text, where a quotation mark or a line break stops the step; and in the compiled pipeline it does not find a
part of a loop's map, nor the item of a loop in a loop (observed with kfp 2.17.0). The mark contains the type, which is
only known while the pipeline is compiled:

    author                  compiled                          arrives               read as
    ---------------------   -------------------------------   -------------------   -----------
    f"--epochs={epochs}"    --epochs=<ptjob-int value-1>      value-1: 12.0         --epochs=12
    ["--epochs", epochs]    <ptjob-int value-1>               value-1: 12.0         12
    ["--note", note]        <ptjob-value value-2>             value-2: say "hi"     say "hi"
    f"{options}"            <ptjob-text value-3>              value-3: {"a": 1.0}   {"a": 1}, as a text
    {"replicas": 3}         3.0                               3.0                   3
    ["--lr", 1.0]           <ptjob-float 1.0>                 <ptjob-float 1.0>     1.0

Pure; it needs no kfp.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "value-"
"""Prefix of the inputs that marks refer to; the component's own inputs have no hyphen."""

_KINDS = {
    "int": ("Integer", "int"),
    "float": ("Float", "float", "Double"),
}
_MARK = re.compile(r"<ptjob-(int|float|text|value) ([^<>]*)>")


def mark_of(name: str, declared: Any, *, in_text: bool = False) -> str:
    """Return the mark for a pipeline's value.

    Args:
        name: name of its input.
        declared: its kfp type.
        in_text: whether it is part of a text, so that a list or a map becomes a text.
    """
    other = "text" if in_text else "value"
    kind = next((kind for kind, names in _KINDS.items() if declared in names), other)
    return f"<ptjob-{kind} {name}>"


def marked(value: Any) -> Any:
    """Return the value to compile, with the type added to every number that would lose it."""
    if isinstance(value, dict):
        return {key: marked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [marked(item) for item in value]
    return f"<ptjob-float {value}>" if isinstance(value, float) and value.is_integer() else value


def unmarked(value: Any, values: Mapping[str, Any] | None = None) -> Any:
    """Return the author's value from a value with marks.

    Args:
        value: the value as it arrives.
        values: the pipeline's values by the names of their inputs.
    """
    if isinstance(value, dict):
        return {_text(unmarked(key, values)): unmarked(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unmarked(item, values) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return _unmarked_text(value, values or {}) if isinstance(value, str) else value


def _unmarked_text(text: str, values: Mapping[str, Any]) -> Any:
    whole = _MARK.fullmatch(text)
    if whole:
        return _read(whole, values)
    return _MARK.sub(lambda match: _text(_read(match, values)), text)


def _read(match: re.Match[str], values: Mapping[str, Any]) -> Any:
    """Return a mark's value; a number gets the marked type.

    kfp assumes that all items of a loop, and all parts of a map in it, have the type of the first one: any of them may
    have another type.
    """
    kind, name = match.groups()
    if name not in values:  # not a pipeline value: a marked constant, or the author's own text that looks like a mark
        return float(name) if kind == "float" else match[0]
    value = values[name] if isinstance(values[name], str) else unmarked(values[name])
    if kind == "float" and type(value) is int:
        value = float(value)
    return _text(value) if kind == "text" else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
