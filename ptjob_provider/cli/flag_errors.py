"""Rewrites errors that name a field for the command line: with the flag as it was typed, and without Python's values.

Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ptjob_provider.cli.fields import Flag, flags
from ptjob_provider.cli.parameters import SPAN_RULE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FIELD = re.compile(r"([a-z_]+)(?:\.([a-z_]+))?((?:\.[\w./:-]+|\[\d+\])*): ")
_NOTHING = "None is not allowed; "
_REFUSED = " is not allowed; "
_NUMBER = "a whole number"


def in_flags(text: str, given: Mapping[str, Any], words: Sequence[str]) -> str:
    """Return the error with the flag instead of the field; unchanged if the field was not set by a flag.

    Args:
        text: the core's message: `field: what is wrong`.
        given: each flag's value by its parameter; None or () if not given.
        words: the command line, for the name under which the flag was typed.
    """
    if text.startswith("--"):
        return _as_typed(text, words)
    found = _FIELD.match(text)
    flag = _flag_of(found[1], found[2], given) if found else None
    if found is None or flag is None:
        return text
    name, rest = _typed(flag, words), text[found.end() :]
    if given.get(flag.parameter) in (None, ()):
        return f"{name} is missing: {rest.removeprefix(_NOTHING)}" if rest.startswith(_NOTHING) else text
    inside = (f".{found[2]}" if found[2] and len(flag.path) == 1 else "") + found[3]
    within = f" ({inside.removeprefix('.')})" if re.search(r"\.\w", inside) else ""
    rest = f"is missing; {rest.removeprefix(_NOTHING)}" if rest.startswith(_NOTHING) else rest
    return f"{name}{within}: {_said(flag, rest, given[flag.parameter])}"


def _as_typed(text: str, words: Sequence[str]) -> str:
    """Return the message about a flag with the name under which it was typed."""
    name, colon, rest = text.partition(": ")
    flag = next((each for each in flags() if name in each.names), None)
    return f"{_typed(flag, words)}{colon}{rest}" if flag else text


def _said(flag: Flag, rest: str, value: object) -> str:
    if flag.shape == "switch":
        rest = rest.partition(_REFUSED)[2] or rest
    elif "seconds" in flag.path[-1] and _NUMBER in rest:
        rest = f"{rest}, or {SPAN_RULE}"
    elif isinstance(value, str) and value.startswith("--"):
        rest = f"{rest}; this flag takes a value, and {value!r} stands in its place"
    return re.sub(r"`([a-z_]+)`", lambda found: _flag_name(found[1]), rest)


def _flag_name(field: str) -> str:
    flag = _flag_of(field, None, {}) or next((each for each in flags() if each.path[-1] == field), None)
    return f"`{flag.names[0] if len(flag.path) > 1 else flag.names[-1]}`" if flag else f"`{field}`"


def _flag_of(field: str, part: str | None, given: Mapping[str, Any]) -> Flag | None:
    """Return the flag of a part of a field, or of the whole field if that was given and the part's was not."""
    known = {flag.path: flag for flag in flags()}
    own, whole = known.get((field, part or "")), known.get((field,))
    if own and whole and given.get(own.parameter) in (None, ()) and given.get(whole.parameter) not in (None, ()):
        return whole
    return own or whole


def _typed(flag: Flag, words: Sequence[str]) -> str:
    """Return the flag's name on the command line, else the field's own."""
    begun = {word.partition("=")[0] for word in words}
    return next((name for name in flag.names if name in begun), flag.names[-1])
