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
from ptjob_provider.retraining.batches import KEY_BYTES, LONGEST_NAME, STAMP_BYTES, ArrivedBatch, count, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOTE = "ptjob.dev/arrived"
"""Default name of the annotation."""

ALLOWED = (
    'a path below the claim, such as incoming/2026-11-22; or JSON: {"path": "incoming/2026-11-22"} with "id", "files", '
    '"bytes" and "modified" if they are known; or {"batches": [...]} of such'
)

_FIELDS = ("path", "id", "files", "bytes", "modified")


def noted(annotations: Mapping[str, str], *, note: str, claim: str) -> tuple[list[ArrivedBatch], dict[str, str]]:
    """Return the noted batches in the order of the notes' names, and problems by the notes' names.

    Args:
        annotations: of the claim.
        note: name of the annotation.
        claim: identifies the claim: a batch of a recreated claim is a new one.
    """
    batches: dict[bytes, ArrivedBatch] = {}
    problems: dict[str, str] = {}
    for name in sorted(annotations):
        if name == note or name.startswith(f"{note}."):
            try:
                batches |= {each.key: each for each in _read(annotations[name].strip(), claim)}
            except InvalidSpec as error:
                problems[name] = str(error)
            except RecursionError:
                problems[name] = f"its value has too many brackets within each other; allowed: {ALLOWED}"
    return list(batches.values()), problems


def _read(note: str, claim: str) -> list[ArrivedBatch]:
    if not note.startswith(("{", "[")):
        return [_batch({"path": note}, claim)]
    try:
        value = json.loads(note)
    except ValueError as error:
        raise InvalidSpec.of("its value", note, f"it is no JSON ({error}); allowed: {ALLOWED}") from None
    return [_batch(each, claim) for each in _descriptions(value)]


def _descriptions(value: Any) -> Iterator[Any]:
    """Yield the description of each batch in the value of a note."""
    if isinstance(value, dict) and set(value) == {"batches"} and isinstance(value["batches"], list):
        yield from value["batches"]
    elif isinstance(value, dict) and "batches" not in value:
        yield value
    else:
        raise InvalidSpec.of("its value", value, f"allowed: {ALLOWED}")


def _batch(fields: Any, claim: str) -> ArrivedBatch:
    if not isinstance(fields, dict) or "path" not in fields:
        raise InvalidSpec.of("its value", fields, f"allowed: {ALLOWED}")
    if unknown := sorted(set(fields) - set(_FIELDS)):
        raise InvalidSpec.of("its fields", unknown[0], one_of(_FIELDS))
    path = _path(fields["path"])
    given = text("its id", fields.get("id", ""), 500)
    modified = text("its modified", fields.get("modified", ""), 40)
    files, size = (count(f"its {field}", fields.get(field, 0)) or 0 for field in ("files", "bytes"))
    identity = (claim, path, given)
    return ArrivedBatch(
        name=path,
        files=files,
        size=size,
        modified=modified,
        key=_digest(identity)[:KEY_BYTES],
        stamp=_digest((*identity, modified, files, size))[:STAMP_BYTES],
    )


def _path(value: Any) -> str:
    pure = PurePosixPath(value) if isinstance(value, str) and value.isprintable() else PurePosixPath("..")
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise InvalidSpec.of("its path", value, "allowed: a path below the claim, without '..' and no '/' before it")
    return text("its path", str(pure), LONGEST_NAME, least=1)


def _digest(parts: tuple[object, ...]) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()
