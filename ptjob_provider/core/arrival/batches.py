"""Group files into batches, and fingerprint the content of a batch."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kind = Literal["folder", "file"]

MARKER = "_SUCCESS"
"""Default marker, written by Hadoop, Spark and many others when a folder is complete."""

KEY_BYTES, STAMP_BYTES = 8, 6

MOST = 2**53 - 1
"""Maximum reported size of a batch: sums of many stay within the 64 bits of the event encoding."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file in the store's listing.

    Attributes:
        path: relative to the source, parts separated by `/`.
        size: in bytes.
        mark: changes when the file is rewritten: the store's etag, else its modification time.
        modified: RFC 3339, by the store's clock; for people.
        is_folder: it is a folder, of which only the name counts.
        trouble: why its content could not be read; "" if it could.
    """

    path: str
    size: int = 0
    mark: str = ""
    modified: str = ""
    is_folder: bool = False
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class BatchRules:
    """Definition of a batch.

    Attributes:
        batch: a folder directly below the source with all its content, or each file, at any depth.
        pattern: of the batch's name (its path below the source), as in a shell; `*` matches `/` too.
        marker: name of the file that marks its folder as complete. None: a batch is complete when it has settled.
    """

    batch: Kind = "folder"
    pattern: str = "*"
    marker: str | None = MARKER

    @property
    def has_markers(self) -> bool:
        """Return whether markers complete the batches."""
        return self.batch == "folder" and self.marker is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Content under one name.

    Attributes:
        name: its path below the source.
        files: number of files.
        size: of all files, in bytes.
        modified: RFC 3339, the newest file's, by the store's clock.
        key: the name's hash.
        stamp: the hash over path, size and mark of all files; differs for other content.
        is_marked: its marker exists.
    """

    name: str
    files: int
    size: int
    modified: str
    key: bytes
    stamp: bytes
    is_marked: bool = False

    @property
    def id(self) -> str:
        """Return an id that depends on the content alone."""
        return f"{self.name}@{self.stamp.hex()}"

    def to_dict(self, source: str) -> dict[str, Any]:
        """Return JSON-safe fields, with the address below this source."""
        uri = f"{source.rstrip('/')}/{self.name}"
        return {"id": self.id, "uri": uri, "files": self.files, "bytes": self.size, "modified": self.modified}


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Complete listing of a source.

    Attributes:
        began: start of the listing, in seconds of the watcher's own clock.
        batches: ordered by name.
        oddities: problems of batches by name; such a batch is incomplete until it is repaired.
        files: number of listed files.
    """

    began: float
    batches: tuple[Batch, ...] = ()
    oddities: Mapping[str, str] = field(default_factory=dict)
    files: int = 0


def group(files: Iterable[StoredFile], rules: BatchRules, *, began: float) -> Listing:
    """Return the batches of these files; names beginning with `.` or `_` are no data, as in Spark."""
    found: dict[str, list[StoredFile]] = defaultdict(list)
    markers: dict[str, bool] = {}
    unread: dict[str, str] = {}
    count = 0
    for each in files:
        count += not each.is_folder
        name = _batch_name(each.path, rules)
        if name is None or not fnmatchcase(name, rules.pattern):
            continue
        if each.trouble:
            unread[name] = each.trouble
            del found.get(name, [])[1:]  # frees the other files of a batch that is not announced
        if rules.has_markers and each.path == f"{name}/{rules.marker}":
            markers[name] = not each.is_folder
        elif not each.is_folder and not _is_hidden(each.path):
            found[name].append(each)
    batches = tuple(_batch(name, found[name], is_marked=markers.get(name, False)) for name in sorted(found))
    oddities = {**_oddities(found, markers, rules), **unread}
    return Listing(began=began, batches=batches, oddities=oddities, files=count)


def _batch_name(path: str, rules: BatchRules) -> str | None:
    if rules.batch == "file":
        return path
    name, inside, _ = path.partition("/")
    return name if inside and not _is_hidden(name) else None


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _batch(name: str, files: list[StoredFile], *, is_marked: bool) -> Batch:
    digest = hashlib.sha256()
    for each in sorted(files, key=lambda file: file.path):
        relative = each.path.removeprefix(f"{name}/")
        digest.update(f"{relative}\0{each.size}\0{each.mark}\0\n".encode(errors="surrogateescape"))
    return Batch(
        name=name,
        files=len(files),
        size=min(sum(each.size for each in files), MOST),
        modified=max(each.modified for each in files),
        key=hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:KEY_BYTES],
        stamp=digest.digest()[:STAMP_BYTES],
        is_marked=is_marked,
    )


def _oddities(found: Mapping[str, object], markers: Mapping[str, bool], rules: BatchRules) -> dict[str, str]:
    """Return problems with names and markers that would prevent a batch for ever."""
    odd = {
        name: "its name has characters that cannot be printed; rename it" for name in found if not name.isprintable()
    }
    for name, is_file in sorted(markers.items()):
        if not is_file:
            odd[name] = f"its {rules.marker} is a folder; write an empty file of that name when the batch is complete"
        elif name not in found:
            odd[name] = f"it has its {rules.marker} and no data; write the data before the marker"
    return odd
