"""Read the batches that programs announce in the annotations of a claim.

A note is the configured annotation, or one whose name adds a dot and a suffix to it. Programs that use different
suffixes do not overwrite each other's notes, so every batch is read, however late. The value of a note is a path below
the claim, or JSON with more details.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec, one_of
from ptjob_provider.retraining.batches import KEY_BYTES, MOST, STAMP_BYTES, Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOTE = "ptjob.dev/arrived"
"""Default name of the annotation."""

ALLOWED = (
    'a path below the claim, such as incoming/2026-11-22; or JSON: {"path": "incoming/2026-11-22"} with "id", "files", '
    '"bytes" and "modified" if they are known; or {"batches": [...]} of such'
)

_FIELDS = ("path", "id", "files", "bytes", "modified")
_LENGTHS = {"id": 500, "modified": 40}
"""Maximum characters of each text."""


def noted(annotations: Mapping[str, str], *, note: str, claim: str) -> tuple[list[Batch], dict[str, str]]:
    """Return the noted batches in the order of the notes' names, and problems by the notes' names.

    Args:
        annotations: of the claim.
        note: name of the annotation.
        claim: identifies the claim: a batch of a recreated claim is a new one.
    """
    batches: dict[bytes, Batch] = {}
    problems: dict[str, str] = {}
    for name in sorted(annotations):
        if name == note or name.startswith(f"{note}."):
            try:
                batches |= {each.key: each for each in _read(annotations[name].strip(), claim)}
            except InvalidSpec as error:
                problems[name] = str(error)
    return list(batches.values()), problems


def _read(text: str, claim: str) -> list[Batch]:
    if not text.startswith(("{", "[")):
        return [_batch({"path": text}, claim)]
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidSpec.of("its value", text, f"it is no JSON ({error}); allowed: {ALLOWED}") from None
    return [_batch(each, claim) for each in _descriptions(value)]


def _descriptions(value: Any) -> Iterator[Any]:
    """Yield the description of each batch in the value of a note."""
    if isinstance(value, dict) and set(value) == {"batches"} and isinstance(value["batches"], list):
        yield from value["batches"]
    elif isinstance(value, dict) and "batches" not in value:
        yield value
    else:
        raise InvalidSpec.of("its value", value, f"allowed: {ALLOWED}")


def _batch(fields: Any, claim: str) -> Batch:
    if not isinstance(fields, dict) or "path" not in fields:
        raise InvalidSpec.of("its value", fields, f"allowed: {ALLOWED}")
    if unknown := sorted(set(fields) - set(_FIELDS)):
        raise InvalidSpec.of("its fields", unknown[0], one_of(_FIELDS))
    path = _path(fields["path"])
    texts = {field: _text(field, fields) for field in _LENGTHS}
    counts = {field: _count(field, fields) for field in ("files", "bytes")}
    identity = (claim, path, texts["id"])
    return Batch(
        name=path,
        files=counts["files"],
        size=counts["bytes"],
        modified=texts["modified"],
        key=_digest(identity)[:KEY_BYTES],
        stamp=_digest((*identity, texts["modified"], counts["files"], counts["bytes"]))[:STAMP_BYTES],
    )


def _path(value: Any) -> str:
    pure = PurePosixPath(value) if isinstance(value, str) and value.isprintable() else PurePosixPath("..")
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise InvalidSpec.of("its path", value, "allowed: a path below the claim, without '..' and no '/' before it")
    return str(pure)


def _text(field: str, fields: Mapping[str, Any]) -> str:
    value = fields.get(field, "")
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LENGTHS[field]:
        raise InvalidSpec.of(
            f"its {field}", value, f"allowed: a printable text of at most {_LENGTHS[field]} characters"
        )
    return value


def _count(field: str, fields: Mapping[str, Any]) -> int:
    value = fields.get(field, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
        raise InvalidSpec.of(f"its {field}", value, "allowed: a whole number from 0 to 2^53 - 1")
    return value


def _digest(parts: tuple[object, ...]) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()
