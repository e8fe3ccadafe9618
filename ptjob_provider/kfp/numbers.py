"""Preserves types of values in a compiled pipeline, which stores every number as a float.

A pipeline value inside a text, a list or a map becomes a separate input, and a mark takes its place. Without marks, kfp
would insert the value's text, and a quotation mark or a line break in it would stop the step; and kfp would not find a
part of a loop's map, or the item of a loop inside a loop (observed with kfp 2.17.0). The mark contains what is only
known when the pipeline is compiled: that a number is a float, that a value stands in a text:

    author                  compiled                          arrives               read as
    ---------------------   -------------------------------   -------------------   -----------
    f"--epochs={epochs}"    --epochs=<ptjob-text value-1>     value-1: 12.0         --epochs=12
    ["--epochs", epochs]    <ptjob-value value-1>             value-1: 12.0         12
    ["--lr", lr]            <ptjob-float value-2>             value-2: 1            1.0
    f"{options}"            <ptjob-text value-3>              value-3: {"a": 1.0}   {"a": 1}, as a text
    {"replicas": 3}         3.0                               3.0                   3
    ["--seed", 2**64]       <ptjob-int 18446744073709551616>  as compiled           18446744073709551616
    ["--lr", 1.0]           <ptjob-float 1.0>                 <ptjob-float 1.0>     1.0

This module is pure and does not import kfp.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.outgoing import EXACT_AS_FLOAT

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "value-"
"""Prefix of the inputs that marks refer to; the component's own inputs have no hyphen."""

_FLOATS = ("Float", "float", "Double")
_CONSTANTS = {"int": int, "float": float}
_MARK = re.compile(r"<ptjob-(int|float|text|value) ([^<>]*)>")


def mark_of(name: str, declared: Any, *, in_text: bool = False) -> str:
    """Return the mark for a pipeline value.

    Args:
        name: name of the value's input.
        declared: the value's type in kfp.
        in_text: whether the value is part of a text, so that a list or a map becomes a text.
    """
    kind = "float" if declared in _FLOATS else "text" if in_text else "value"
    return f"<ptjob-{kind} {name}>"


def marked(value: Any) -> Any:
    """Return the value to compile, with a mark in place of every number whose type would be lost."""
    if isinstance(value, dict):
        return {key: marked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [marked(item) for item in value]
    if isinstance(value, float) and (value.is_integer() or not math.isfinite(value)):
        return f"<ptjob-float {value}>"
    return f"<ptjob-int {value}>" if isinstance(value, int) and abs(value) > EXACT_AS_FLOAT else value


def unmarked(value: Any, values: Mapping[str, Any] | None = None, *, field: str = "a number") -> Any:
    """Return the value that the pipeline's author wrote, from a value with marks.

    Args:
        value: the value as the step receives it.
        values: the pipeline values by the names of their inputs.
        field: the value's name, for errors.

    Raises:
        InvalidSpec: a whole number is so large that it may have been rounded.
    """
    if isinstance(value, dict):
        return {
            _text(unmarked(key, values)): unmarked(item, values, field=f"{field}.{key}") for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [unmarked(item, values, field=f"{field}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        if abs(value) > EXACT_AS_FLOAT:
            allowed = "allowed: less than 2^53; Kubeflow Pipelines may have rounded it: make it a text in the pipeline"
            raise InvalidSpec.of(field, value, allowed)
        return value if isinstance(value, bool) else int(value)
    return _unmarked_text(value, values or {}, field) if isinstance(value, str) else value


def _unmarked_text(text: str, values: Mapping[str, Any], field: str) -> Any:
    whole = _MARK.fullmatch(text)
    if whole:
        return _read(whole, values, field)
    return _MARK.sub(lambda match: _text(_read(match, values, field)), text)


def _read(match: re.Match[str], values: Mapping[str, Any], field: str) -> Any:
    """Return a mark's value; whatever is no number stays what it is, because a loop's items may differ in type."""
    kind, name = match.groups()
    if name not in values:  # a marked constant, or a text of the author that looks like a mark
        try:
            return _CONSTANTS[kind](name)
        except (KeyError, ValueError):
            return match[0]
    value = values[name]
    if kind == "float" and type(value) in (int, float):
        return float(value)
    value = value if isinstance(value, str) else unmarked(value, field=field)
    return _text(value) if kind == "text" else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
