"""Group files into batches, decide which batches to announce, and record the announced ones. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.retraining.layouts import Layout

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

MOST_BATCHES = 200
"""Maximum batches in one event: about 40 KB. Airflow writes each event to the triggerer's log, where a record of 8 MB
blocks the event loop of all triggers for seconds."""


def payloads(source: str, batches: Sequence[ArrivedBatch], *, together: bool) -> Iterator[dict[str, Any]]:
    """Yield the payloads for these batches: one per batch, or one for all, split after each `MOST_BATCHES`."""
    size = MOST_BATCHES if together else 1
    for start in range(0, len(batches), size):
        yield payload(source, batches[start : start + size])


def payload(source: str, batches: Sequence[ArrivedBatch]) -> dict[str, Any]:
    """Return the payload of one event; the version depends on the contents alone."""
    return {
        "source": source,
        "version": _version([batch.id for batch in batches]),
        "batches": [batch.to_dict(source) for batch in batches],
        "files": sum(batch.files for batch in batches),
        "bytes": sum(batch.size for batch in batches),
    }


def _version(ids: Sequence[str]) -> str:
    if len(ids) == 1:
        return ids[0]
    digest = hashlib.sha256("\n".join(sorted(ids)).encode(errors="surrogateescape"))
    return f"{len(ids)}-batches@{digest.hexdigest()[:12]}"


Kind = Literal["folder", "file"]

MARKER = "_SUCCESS"
"""Default marker; Hadoop, Spark and many others write it when a folder is complete."""

KEY_BYTES, STAMP_BYTES = 8, 6

LONGEST_NAME = 500 - len("@") - 2 * STAMP_BYTES
"""Maximum characters of a batch's name, because the ledger stores an id of at most 500: the name, `@` and the stamp."""

MOST = 2**53 - 1
"""Maximum reported size of a batch, so that sums of many sizes fit into the 64 bits of databases and of events."""


def text(field: str, value: Any, most: int, *, least: int = 0) -> str:
    """Return a batch's text, if it is printable and has `least` to `most` characters: the ledger's columns have limits.

    Raises:
        InvalidSpec: the value is not such a text.
    """
    if not isinstance(value, str) or not value.isprintable() or not least <= len(value) <= most:
        raise InvalidSpec.of(field, value, f"allowed: a printable text of {least} to {most} characters")
    return value


def count(field: str, value: Any) -> int | None:
    """Return a batch's number of files or bytes; None if it is unknown.

    Raises:
        InvalidSpec: the value is not a whole number from 0 to `MOST`.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise InvalidSpec.of(field, value, "allowed: a whole number from 0 to 2^53 - 1")
    return value


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file in the store's listing.

    Attributes:
        path: relative to the source, parts separated by `/`.
        size: in bytes.
        mark: changes when the file is rewritten: the store's etag, else its modification time.
        modified: RFC 3339, by the store's clock; for people.
        is_folder: whether it is a folder; then only the path is used.
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
        batch: "folder": each folder `depth` levels below the source with all its content. "file": each file, at any
            depth.
        pattern: glob for the batch's name (its path below the source), as in a shell; `*` matches `/` too.
        marker: name of the file that marks its folder as complete. None: a batch is complete when it has settled.
        depth: number of folders in a batch's name: 3 for `2026/11/27`. 1: those directly below the source.
    """

    batch: Kind = "folder"
    pattern: str = "*"
    marker: str | None = MARKER
    depth: int = 1

    @property
    def has_markers(self) -> bool:
        """Return whether markers complete the batches."""
        return self.batch == "folder" and self.marker is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedBatch:
    """Files that arrived together, under one name.

    Attributes:
        name: path below the source.
        files: number of files.
        size: of all files, in bytes.
        modified: RFC 3339, the newest file's, by the store's clock.
        key: the name's hash.
        stamp: the hash over path, size and mark of all files; differs for other content.
        is_marked: whether the marker exists.
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
        """Return JSON-safe fields, with the batch's address below this source."""
        uri = f"{source.rstrip('/')}/{self.name}"
        return {"id": self.id, "uri": uri, "files": self.files, "bytes": self.size, "modified": self.modified}


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Complete listing of a source.

    Attributes:
        began: start of the listing, in seconds of the watcher's own clock.
        batches: ordered by name.
        oddities: problems by the name of a batch, or of a folder of batches; nothing of it is announced until it is
            repaired.
        files: number of listed files.
        advice: what the source has instead of a complete batch, and which argument reads it; "" if it has one.
    """

    began: float
    batches: tuple[ArrivedBatch, ...] = ()
    oddities: Mapping[str, str] = field(default_factory=dict)
    files: int = 0
    advice: str = ""


def group(files: Iterable[StoredFile], rules: BatchRules, *, began: float) -> Listing:
    """Group the files into batches; names that begin with `.` or `_` are not data, as in Spark."""
    grouped: dict[str, list[StoredFile]] = defaultdict(list)
    markers: dict[str, bool] = {}
    unread: dict[str, str] = {}
    layout, count = Layout(), 0
    for each in files:
        if not each.is_folder:
            count += 1
            layout.add(each.path)
        name = _batch_name(each.path, rules)
        if name is None and each.trouble and not _is_hidden(each.path):
            unread[each.path.rstrip("/")] = each.trouble
        if name is None or not fnmatchcase(name, rules.pattern):
            continue
        if each.trouble:
            unread[name] = each.trouble
            del grouped.get(name, [])[1:]  # saves memory, because this batch is not announced
        if rules.has_markers and each.path == f"{name}/{rules.marker}":
            markers[name] = not each.is_folder
        elif not each.is_folder and not _is_hidden(each.path):
            grouped[name].append(each)
    batches = tuple(_batch(name, grouped[name], is_marked=markers.get(name, False)) for name in sorted(grouped))
    odd = _oddities(grouped, markers, rules)
    oddities = {name: why for name, why in odd.items() if unread.keys().isdisjoint(_levels(name))} | unread
    is_read = any(each.is_marked or not rules.has_markers for each in batches)
    advice = "" if is_read or oddities else layout.advice(rules)
    return Listing(began=began, batches=batches, oddities=oddities, files=count, advice=advice)


def _batch_name(path: str, rules: BatchRules) -> str | None:
    if rules.batch == "file":
        return path
    parts = path.split("/", rules.depth)
    name = "/".join(parts[: rules.depth])
    return name if len(parts) > rules.depth and not _is_hidden(name) else None


def _levels(name: str) -> Iterator[str]:
    """Return the batch's name and the folders that it is in."""
    return accumulate(name.split("/"), "{}/{}".format)


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _batch(name: str, files: list[StoredFile], *, is_marked: bool) -> ArrivedBatch:
    digest = hashlib.sha256()
    for each in sorted(files, key=lambda file: file.path):
        relative = each.path.removeprefix(f"{name}/")
        digest.update(f"{relative}\0{each.size}\0{each.mark}\0\n".encode(errors="surrogateescape"))
    return ArrivedBatch(
        name=name,
        files=len(files),
        size=min(sum(each.size for each in files), MOST),
        modified=max(each.modified for each in files),
        key=hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:KEY_BYTES],
        stamp=digest.digest()[:STAMP_BYTES],
        is_marked=is_marked,
    )


def _oddities(names: Collection[str], markers: Mapping[str, bool], rules: BatchRules) -> dict[str, str]:
    """Return the problems of names and markers that would prevent a batch for ever, by the batch's name."""
    odd = {
        name: "its name has characters that cannot be printed; rename it" for name in names if not name.isprintable()
    }
    long = f"its name has more than {LONGEST_NAME} characters; shorten it"
    odd |= {name: long for name in names if len(name) > LONGEST_NAME}
    for name, is_file in sorted(markers.items()):
        if not is_file:
            odd[name] = f"its {rules.marker} is a folder; write an empty file of that name when the batch is complete"
        elif name not in names:
            odd[name] = f"it has its {rules.marker} and no data; write the data before the marker"
    return odd


ENTRY = KEY_BYTES + STAMP_BYTES

PAGE = 3400
"""Batches per page of a watermark: 63,468 characters. Airflow warns at each write of a value of 64 KB or more."""


class Watermark:
    """Batches announced by accepted events, in the order of their first announcement."""

    def __init__(self) -> None:
        self._stamps: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._stamps)

    def has(self, batch: ArrivedBatch) -> bool:
        """Return whether the batch was announced with exactly this content."""
        return self._stamps.get(batch.key) == batch.stamp

    def knows(self, batch: ArrivedBatch) -> bool:
        """Return whether any content was announced under the batch's name."""
        return batch.key in self._stamps

    def add(self, batches: Iterable[ArrivedBatch]) -> None:
        """Record these batches as announced; they replace earlier ones of the same name."""
        self._stamps.update((batch.key, batch.stamp) for batch in batches)

    def keys(self) -> frozenset[bytes]:
        """Return the hashes of all names."""
        return frozenset(self._stamps)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Remove the batches with these hashes of their names."""
        for key in keys:
            self._stamps.pop(key, None)

    def common(self, other: Watermark) -> Watermark:
        """Return the intersection: a batch that is missing in one watermark must be announced again."""
        both = Watermark()
        both._stamps = {key: stamp for key, stamp in self._stamps.items() if other._stamps.get(key) == stamp}
        return both

    def pages(self) -> list[str]:
        """Return the watermark as texts; adding changes the last pages only, forgetting may change all."""
        raw = b"".join(key + stamp for key, stamp in self._stamps.items())
        step = PAGE * ENTRY
        return [base64.b64encode(raw[place : place + step]).decode() for place in range(0, len(raw), step)]

    @classmethod
    def from_pages(cls, pages: Sequence[object]) -> Watermark:
        """Return the watermark in these texts; an unreadable page counts as empty: its batches are announced again."""
        watermark = cls()
        for page in pages:
            raw = _decoded(page)
            for place in range(0, len(raw) - ENTRY + 1, ENTRY):
                key = raw[place : place + KEY_BYTES]
                watermark._stamps[key] = raw[place + KEY_BYTES : place + ENTRY]
        return watermark


def _decoded(page: object) -> bytes:
    if not isinstance(page, str):
        return b""
    try:
        return base64.b64decode(page, validate=True)
    except binascii.Error:
        return b""


REMEMBERED = 86_400.0
"""Seconds for which a batch that is no longer listed is remembered: a listing may be truncated without an error."""

SWEEP = 3600.0
"""Seconds between two clean-ups; each of them rewrites the whole watermark."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    """First listing in which a batch had its current content."""

    stamp: bytes
    since: float


class Arrivals:
    """Announced, pending and vanished batches of one source.

    A batch is announced once two listings show the same content and the second one began after the first one ended: a
    listing takes time, and may include a marker but miss a file that was written before it. A batch with a marker needs
    no more. A batch without a marker, or one that has changed since it was announced, must also be unchanged for
    `settle_seconds`.

    Args:
        rules: definition of a batch.
        settle_seconds: measured with the watcher's own clock.
        watermark: the batches announced so far.
    """

    def __init__(self, rules: BatchRules, *, settle_seconds: float, watermark: Watermark | None = None) -> None:
        self.watermark = watermark or Watermark()
        self._rules = rules
        self._settle_seconds = settle_seconds
        self._sightings: dict[bytes, _Sighting] = {}
        self._missing: dict[bytes, float] = {}
        self._swept = 0.0

    def ready(self, listing: Listing) -> list[ArrivedBatch]:
        """Return the batches to announce; may be called again for the same listing after `take`."""
        new = [each for each in listing.batches if not self.watermark.has(each)]
        open_batches = [each for each in new if listing.oddities.keys().isdisjoint(_levels(each.name))]
        waiting = [each for each in open_batches if each.is_marked or not self._rules.has_markers]
        before, self._sightings = self._sightings, {}
        for batch in waiting:
            sighting = before.get(batch.key)
            if sighting is None or sighting.stamp != batch.stamp:
                sighting = _Sighting(batch.stamp, listing.began)
            self._sightings[batch.key] = sighting
        return [each for each in waiting if self._is_ready(each, listing.began)]

    def needs_confirmation(self, listing: Listing) -> bool:
        """Return whether a batch of this listing is ready as soon as another listing confirms it."""
        return any(
            self._sightings[batch.key].since == listing.began and self._required_age(batch) == 0.0
            for batch in listing.batches
            if batch.key in self._sightings
        )

    def take(self, batches: Sequence[ArrivedBatch]) -> None:
        """Record these batches as announced."""
        self.watermark.add(batches)
        for batch in batches:
            self._sightings.pop(batch.key, None)

    def sweep(self, listing: Listing) -> None:
        """Forget the batches that have not been listed for a day.

        An empty source changes nothing, because it may be an unmounted volume.
        """
        listed = {batch.key for batch in listing.batches}
        self._missing = {key: since for key, since in self._missing.items() if key not in listed}
        if not listed or (self._swept and listing.began - self._swept < SWEEP):
            return
        self._swept = listing.began
        missing = self.watermark.keys() - listed
        self._missing = {key: self._missing.get(key, listing.began) for key in missing}
        old = _older(self._missing.items(), listing.began - REMEMBERED)
        self.watermark.forget(old)
        for key in old:
            del self._missing[key]

    def _is_ready(self, batch: ArrivedBatch, now: float) -> bool:
        since = self._sightings[batch.key].since
        return now > since and now - since >= self._required_age(batch)

    def _required_age(self, batch: ArrivedBatch) -> float:
        is_complete = self._rules.has_markers and not self.watermark.knows(batch)
        return 0.0 if is_complete else self._settle_seconds


def _older(missing: Iterable[tuple[bytes, float]], limit: float) -> list[bytes]:
    return [key for key, since in missing if since <= limit]
