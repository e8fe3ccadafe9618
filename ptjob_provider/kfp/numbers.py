"""Numbers on their way through a compiled pipeline, which keeps every number as a float and turns many into texts.

A pipeline's value that stands inside a text, a list or a map arrives as a text: 12 as `12.0` where a pipeline runs on
one machine, as `12` on a cluster (tried with kfp 2.17.0). What type it has is only known while the pipeline is
compiled, so it is written beside the value then and read when the step runs:

    author                  compiled                          arrives                       read as
    ---------------------   -------------------------------   ---------------------------   -----------
    f"--epochs={epochs}"    --epochs=<ptjob-int {{…}}>        --epochs=<ptjob-int 12.0>     --epochs=12
    ["--epochs", epochs]    <ptjob-int {{…}}>                 <ptjob-int 12.0>              12
    {"replicas": 3}         3.0                               3.0                           3
    ["--lr", 1.0]           <ptjob-float 1.0>                 <ptjob-float 1.0>             1.0

Pure; it needs no kfp, because a pipeline's value says its type in its text: `{{channel:task=…;name=…;type=Integer;}}`.
"""

from __future__ import annotations

import re
from typing import Any

_INTEGER_CHANNEL = re.compile(r"\{\{channel:task=[^;{}]*;name=[^;{}]+;type=(?:Integer|int);\}\}")
_FLOAT_CHANNEL = re.compile(r"\{\{channel:task=[^;{}]*;name=[^;{}]+;type=(?:Float|float|Double);\}\}")
_MARK = re.compile(r"<ptjob-(int|float) ([^<>]*)>")


def marked(value: Any) -> Any:
    """Return what is compiled: the value with the type written beside every number that would lose it.

    Args:
        value: a text, a number, or a list or map of such; pipeline values in it are in their text form.
    """
    if isinstance(value, dict):
        return {key: marked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [marked(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return f"<ptjob-float {value}>"
    return _marked_text(value) if isinstance(value, str) else value


def unmarked(value: Any) -> Any:
    """Return what the author wrote, of a value as it arrives."""
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unmarked(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return _unmarked_text(value) if isinstance(value, str) else value


def _marked_text(text: str) -> str:
    """Mark whole numbers wherever they stand; others only where nothing else stands: their text is right already."""
    if _FLOAT_CHANNEL.fullmatch(text):
        return f"<ptjob-float {text}>"
    return _INTEGER_CHANNEL.sub(lambda found: f"<ptjob-int {found[0]}>", text)


def _unmarked_text(text: str) -> Any:
    whole = _MARK.fullmatch(text)
    if whole:
        return _number(whole)
    return _MARK.sub(lambda found: str(_number(found)), text)


def _number(found: re.Match[str]) -> int | float:
    kind, text = found.groups()
    return float(text) if kind == "float" else int(float(text)) if "." in text or "e" in text.lower() else int(text)
