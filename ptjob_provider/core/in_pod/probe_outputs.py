"""Inspect a job's outputs in place and report facts about them; `outputs` judges the facts.

This file needs only the standard library, Python 3.6 or newer, and imports nothing of this package: it runs in the
job's own image, as `python probe.py < request.json > report.json`. The local back-end imports it.

    request  {"model": path or null, "tfevents": path or null, "roots": {"model": directory, "tfevents": directory},
              "curves": true to include curves,
              "since": when the training's first attempt was created, in seconds since 1970, or null,
              "started": when the job itself was created, likewise,
              "before": what `listing` returned before the start, or null: then the times of files decide,
              "reads_clock": true to read the clock of the storage by creating and deleting a file,
              "doubt": why the clocks cannot be compared, or ""}
    report   {"model": facts or null, "tfevents": facts or null,      facts: known fields of `outputs.OutputFacts`
              "clock": this machine's time when it read the clock of the storage, or null}

Nothing outside an output's root is read, and links to directories are not followed.

A file is older than the training if it is in the listing and unchanged. Without a listing it is older if it was last
modified before `since`, by the clock of the storage; without that clock, if it was so two minutes before.

The sha256 of a file is that of its content. The sha256 of a directory is that of the list of its files, so that a
person can check it (if no file is a link):
`find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum`.

Of tfevents, the last value of each scalar is reported, by step and then by wall time. The value may be in any file,
because a resumed training writes a new file. Older files are not read, and neither are records from before `since`. As
in TensorBoard, a subdirectory is a separate run. A tag begins with its run's path only if two runs of the job have the
tag. Values for which JSON has no number are the texts NaN, Infinity and -Infinity. At most MAX_TAGS tags are reported,
the first by name. Curves are lists of [step, value] of the first MAX_CURVES tags, evenly reduced to MAX_POINTS points,
and always contain the last point.
"""
# Paths are bytes, because file names may not be valid text, which pathlib requires.
# ruff: noqa: PTH108, PTH110, PTH112, PTH114, PTH116, PTH118, PTH119, PTH120, PTH123

import errno
import hashlib
import json
import math
import os
import stat
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    Scalars = list[tuple[bytes, float]]
    Event = tuple[int, float, Scalars]

MAX_TAGS, MAX_CURVES, MAX_POINTS = 200, 20, 200
ALLOWANCE = 120.0  # seconds that clocks may differ which could not be compared
CLOCK_FILE = b".ptjob-clock-"  # how the name of the file begins that reads the storage's clock
_MAX_TAG_LENGTH = 256
_MAX_RECORD = 16 * 1024 * 1024  # larger records contain images or embeddings
_MAX_TROUBLES = 5
_CHUNK = 1024 * 1024

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_RECORD_HEAD = struct.Struct("<QI")
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_TENSORS = {1: ("<f", 5), 2: ("<d", 6)}  # DataType: layout, field


def inspect(request: "dict[str, Any]") -> "dict[str, Any]":
    """Return the report for a request; the report names files that cannot be read.

    Raises:
        OSError: a root, or the path to an output, cannot be read.
        ValueError: the request is malformed.
    """
    events = _Events(request.get("started") or 0.0, with_curves=bool(request.get("curves")))
    readers = {"model": _Model(), "tfevents": events}  # type: dict[str, _Model | _Events]
    ages = {name: _Ages(request, name) for name in readers}
    report = {
        name: _look(request[name], request["roots"][name], reader, ages[name]) if request.get(name) else None
        for name, reader in readers.items()
    }  # type: dict[str, Any]
    return {**report, "clock": max((age.read_at for age in ages.values() if age.read_at), default=None)}


def listing(request: "dict[str, Any]") -> "dict[str, Any]":
    """Return the marks of all files of the outputs, by output and file name, for the request's field `before`.

    Raises:
        OSError: a file cannot be looked at.
    """
    found = {}  # type: dict[str, dict[str, list[int]]]
    for name in request["roots"]:
        top, found[name] = os.path.realpath(_bytes(request[name])), {}
        files = _files(top, _Model(), []) if os.path.isdir(top) else [(os.path.basename(top), top)]
        for file, path in files:
            if os.path.exists(path):
                found[name][_key(file)] = _mark(os.stat(path))
    return found


def _key(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _mark(info: "os.stat_result") -> "list[int]":
    return [info.st_mtime_ns, info.st_size, info.st_ino]


class _Ages:
    """Tells an output's files of earlier trainings from those of this one.

    `read_at` is this machine's time when the clock of the storage was read; 0.0 if it was not.
    """

    def __init__(self, request: "dict[str, Any]", name: str) -> None:
        self._before = (request.get("before") or {}).get(name)
        self._reads_clock, self.doubt = request.get("reads_clock"), request.get("doubt") or ""
        self._start, self._lead, self.read_at = request.get("since") or 0.0, 0.0, 0.0

    def compare_clocks(self, directory: bytes) -> None:
        """Read the storage's clock, which may be that of another machine, by a file that is then deleted."""
        if not self._reads_clock or self.doubt:
            return
        path = os.path.join(directory, CLOCK_FILE + os.urandom(8).hex().encode())
        try:
            with open(path, "wb") as file:
                self.read_at = time.time()
                self._lead = os.fstat(file.fileno()).st_mtime - self.read_at
            os.unlink(path)
        except OSError as error:
            self.doubt = error.strerror or str(error)

    @property
    def _oldest(self) -> float:
        return self._start - (ALLOWANCE if self.doubt else 0.0)

    def is_older(self, name: bytes, info: "os.stat_result") -> bool:
        if self._before is not None:
            return bool(self._before.get(_key(name)) == _mark(info))
        return info.st_mtime < self._oldest + self._lead

    def is_doubtful(self, info: "os.stat_result") -> bool:
        return bool(self.doubt) and info.st_mtime < self._start + ALLOWANCE

    def first_record(self, name: bytes) -> float:
        """Return the time from which on the records of an event file are this training's."""
        return 0.0 if self._before is not None and _key(name) not in self._before else self._oldest


class _Model:
    """Computes the digest of a model, a file or a directory."""

    def __init__(self) -> None:
        self._only, self._whole, self._list = "", True, hashlib.sha256()

    def wants(self, name: bytes) -> bool:
        return not os.path.basename(name).startswith(CLOCK_FILE)

    def read(self, name: bytes, path: bytes, _info: "os.stat_result", _ages: _Ages) -> None:
        self._whole, was_whole = False, self._whole
        digest = hashlib.sha256()
        with open(path, "rb") as stream:
            for chunk in iter(lambda: stream.read(_CHUNK), b""):
                digest.update(chunk)
        self._only, self._whole = digest.hexdigest(), was_whole
        self._list.update(b"%s  ./%s\n" % (self._only.encode(), name))

    def facts(self, *, is_dir: bool) -> "dict[str, Any]":
        digest = self._list.hexdigest() if is_dir else self._only
        return {"sha256": digest if self._only and self._whole else ""}

    def remarks(self, older: "list[bytes]") -> "list[str]":
        return [f"{_some(older)}: older than the job, and counted as a part of the model"] if older else []


class _Curve:
    """Collects the points of one scalar; as their number grows, keeps every second, every fourth, … point only."""

    def __init__(self) -> None:
        self._points, self._count, self._stride = [], 0, 1  # type: list[tuple[int, float, float]], int, int

    def add(self, point: "tuple[int, float, float]") -> None:
        if self._count % self._stride == 0:
            self._points.append(point)
        self._count += 1
        if len(self._points) >= 2 * MAX_POINTS:
            self._points, self._stride = self._points[::2], 2 * self._stride

    def facts(self, last: "tuple[int, float, float]") -> "list[list[Any]]":
        newest = {step: value for step, _, value in sorted([*self._points, last], key=lambda point: point[:2])}
        backwards = sorted(newest.items(), reverse=True)[:: -(-len(newest) // MAX_POINTS)]
        return [[step, _json_number(value)] for step, value in reversed(backwards)]


class _Events:
    """Collects the last value of each scalar in event files, and curves on request.

    A scalar's key is (tag, run).
    """

    def __init__(self, started: float, *, with_curves: bool = False) -> None:
        self._started, self._with_curves = started, with_curves
        self._curves = {}  # type: dict[tuple[str, str], _Curve]
        self._last = {}  # type: dict[tuple[str, str], tuple[int, float, float]]
        self._last_step = None  # type: int | None
        self._writers = {}  # type: dict[tuple[str, str], tuple[float, float, bytes]]
        self._rivals = {}  # type: dict[tuple[str, str], list[bytes]]

    def wants(self, name: bytes) -> bool:
        return b"tfevents" in os.path.basename(name)

    def read(self, name: bytes, path: bytes, info: "os.stat_result", ages: _Ages) -> None:
        run, keys, times = os.path.dirname(name), set(), []  # type: ignore[var-annotated]
        try:
            for step, wall_time, scalars in self._events(name, path, info, ages):
                times = [*times[:1], wall_time]
                keys.update(self._take(_text(run), step, wall_time, scalars))
        finally:
            for key in keys & set(self._last):
                self._compare_writers(key, (min(times), max(times), name))

    def facts(self, *, is_dir: bool) -> "dict[str, Any]":  # noqa: ARG002 - as _Model has it
        names = self._names()
        scalars = {tag: _json_number(self._last[names[tag]][2]) for tag in sorted(names)}
        drawn = sorted(names)[:MAX_CURVES] if self._with_curves else []
        curves = {tag: self._curves[names[tag]].facts(self._last[names[tag]]) for tag in drawn}
        return {"last_step": self._last_step, "scalars": scalars, "curves": curves}

    def remarks(self, _older: "list[bytes]") -> "list[str]":
        pairs = {tag: self._rivals[key] for tag, key in sorted(self._names().items()) if key in self._rivals}
        return [
            f"{tag} has two writers at the same time, {_some(files)}: its value may be another job's or replica's"
            for tag, files in list(pairs.items())[:_MAX_TROUBLES]
        ]

    def _names(self) -> "dict[str, tuple[str, str]]":
        """Return the keys by the names under which they are reported.

        A run of an earlier attempt gives way to one of this job: Lightning counts `version_0`, `version_1`, …
        """
        names = {}  # type: dict[str, tuple[str, str]]
        for tag in sorted({tag for tag, _ in self._last}):
            runs = sorted(run for each, run in self._last if each == tag)
            own = [run for run in runs if self._last[tag, run][1] >= self._started] or runs
            for run in own:
                name = f"{run}/{tag}" if run and len(own) > 1 else tag
                while name in names:
                    name = f"./{name}"
                names[name] = (tag, run)
        return names

    def _events(self, name: bytes, path: bytes, info: "os.stat_result", ages: _Ages) -> "Iterator[Event]":
        """Yield a file's events since the training began: step, time and scalars."""
        damaged, since = 0, ages.first_record(name)
        if ages.is_older(name, info):
            return
        with open(path, "rb") as stream:
            for record in _records(stream, info.st_size):
                try:
                    found = _event(record)
                except (ValueError, struct.error):
                    damaged += 1
                    continue
                if found[1] >= since:
                    yield found
        if damaged:
            raise ValueError(f"{damaged} records are no events")

    def _take(self, run: str, step: int, wall_time: float, scalars: "Scalars") -> "Iterator[tuple[str, str]]":
        for name, value in scalars:
            self._last_step = step if self._last_step is None else max(step, self._last_step)
            key = (_text(name), run)
            if len(key[0]) + len(run) < _MAX_TAG_LENGTH:
                self._keep(key, (step, wall_time, value))
                yield key

    def _keep(self, key: "tuple[str, str]", last: "tuple[int, float, float]") -> None:
        before = self._last.get(key)
        self._last[key] = last if before is None else max(last, before, key=lambda point: point[:2])
        if self._with_curves:
            self._curves.setdefault(key, _Curve()).add(last)
        if len(self._last) > MAX_TAGS:
            self._curves.pop(max(self._last), None)
            del self._last[max(self._last)]

    def _compare_writers(self, key: "tuple[str, str]", writer: "tuple[float, float, bytes]") -> None:
        """Remember two files with a tag whose writers were at work at the same time, unlike those of a restart."""
        other = self._writers.setdefault(key, writer)
        if other is not writer and writer[0] < other[1] and other[0] < writer[1]:
            self._rivals[key] = [other[2], writer[2]]
        self._writers[key] = max(other, writer, key=lambda each: each[1])


def _look(path: str, root: str, reader: "_Model | _Events", ages: _Ages) -> "dict[str, Any]":
    inner, outer = os.path.realpath(_bytes(path)), os.path.realpath(_bytes(root))
    os.stat(outer)
    if not _is_inside(inner, outer):
        why = f"{_text(inner)} is outside of {_text(outer)}, where the output has to be"
        return {"exists": False, "problem": why}
    try:
        info = os.stat(inner)
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            raise
        return {"exists": False}
    is_dir = stat.S_ISDIR(info.st_mode)
    if not is_dir and not stat.S_ISREG(info.st_mode):
        return {"exists": False, "problem": "it is neither a file nor a directory"}
    ages.compare_clocks(inner if is_dir else os.path.dirname(inner))
    return _read(inner, outer, reader, ages, is_dir=is_dir)


def _read(top: bytes, root: bytes, reader: "_Model | _Events", ages: _Ages, *, is_dir: bool) -> "dict[str, Any]":
    troubles, older, doubtful = [], [], []  # type: list[str], list[bytes], list[bytes]
    files, size, modified_at = 0, 0, 0.0
    for name, path in _files(top, reader, troubles) if is_dir else [(os.path.basename(top), top)]:
        try:
            info = _checked(path, root)
            files, size, modified_at = files + 1, size + info.st_size, max(modified_at, info.st_mtime)
            if ages.is_older(name, info):
                older.append(name)
            elif ages.is_doubtful(info):
                doubtful.append(name)
            reader.read(name, path, info, ages)
        except OSError as error:
            troubles.append(f"{_text(name)}: {error.strerror}")
        except ValueError as error:
            troubles.append(f"{_text(name)}: {error}")
    facts = {"exists": True, "is_dir": is_dir, "files": files, "bytes": size, "modified_at": modified_at}
    ages_of = {"is_stale": 0 < files == len(older), "in_doubt": bool(doubtful)}
    remarks = reader.remarks(older if len(older) < files else [])
    if doubtful:
        why = f"the clock of the storage could not be compared with the cluster's ({ages.doubt})"
        remarks.append(f"{_some(doubtful)}: may be an earlier job's: written around this job's start, and {why}")
    told = {"problem": "; ".join(_first(troubles)), "remarks": remarks}
    return {**facts, **ages_of, **told, **reader.facts(is_dir=is_dir)}


def _first(texts: "list[str]") -> "list[str]":
    more = len(texts) - _MAX_TROUBLES
    return [*texts[:_MAX_TROUBLES], *([f"and {more} more"] if more > 0 else [])]


def _some(names: "list[bytes]") -> str:
    return ", ".join(_first([_text(name) for name in names]))


def _files(top: bytes, reader: "_Model | _Events", troubles: "list[str]") -> "Iterator[tuple[bytes, bytes]]":
    """Yield (name, path) of the files below a directory, sorted by name, without reading the whole tree first."""
    waiting = [b""]
    while waiting:
        name = waiting.pop()
        path = os.path.join(top, name)
        if name and not name.endswith(b"/"):
            yield name, path
            continue
        try:
            with os.scandir(path) as entries:
                below = [
                    name + entry.name + (b"/" if entry.is_dir(follow_symlinks=False) else b"") for entry in entries
                ]
        except OSError as error:
            troubles.append(f"{_text(name or b'.')}: {error.strerror}")
            continue
        waiting.extend(sorted((each for each in below if each.endswith(b"/") or reader.wants(each)), reverse=True))


def _checked(path: bytes, root: bytes) -> "os.stat_result":
    if os.path.islink(path) and not _is_inside(os.path.realpath(path), root):
        raise ValueError(f"a link that leaves {_text(root)}, not followed")
    info = os.stat(path)
    if stat.S_ISDIR(info.st_mode):
        raise ValueError("a link to a directory, not followed")
    if not stat.S_ISREG(info.st_mode):
        raise ValueError("not a file")
    return info


def _is_inside(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(os.path.join(root, b""))


def _bytes(path: str) -> bytes:
    if not path.startswith("/"):
        raise ValueError(f"not an absolute path: {path!r}")
    return path.encode("utf-8", "surrogateescape")  # the same in every locale


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace").replace("\0", "\ufffd")  # accepted by every database


def _json_number(value: float) -> "float | str":
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _records(stream: "IO[bytes]", size: int) -> "Iterator[bytes]":
    """Yield the records of a TFRecord file; skip an incomplete last record, which is still being written.

    The checksum of each record's length shows whether the file is a TFRecord file. The checksums of the data are not
    verified: the standard library has no crc32c, and in Python it would take longer than everything else.

    Raises:
        ValueError: from some offset on, the file is not a TFRecord file.
    """
    while True:
        place = stream.tell()
        head = stream.read(_RECORD_HEAD.size)
        if len(head) < _RECORD_HEAD.size:
            return
        length, check = _RECORD_HEAD.unpack(head)
        if _masked_crc32c(head[:8]) != check:
            raise ValueError(f"no event file from byte {place} on")
        if length > size:
            return
        if length > _MAX_RECORD:
            stream.seek(length + 4, os.SEEK_CUR)
            continue
        record = stream.read(length + 4)
        if len(record) < length + 4:
            return
        yield record[:-4]


def _masked_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_TABLE = [_crc_entry(byte) for byte in range(256)]


def _event(record: bytes) -> "Event":
    """Parse an Event message: its step, its wall time and its scalars."""
    step, wall_time, scalars = 0, 0.0, []  # type: ignore[var-annotated]
    for key, value in _fields(record):
        if key == (1, _FIXED64):
            (wall_time,) = struct.unpack("<d", value)
        elif key == (2, _VARINT):
            step = _signed(value)
        elif key == (5, _BYTES):
            values = [_scalar(part) for part_key, part in _fields(value) if part_key == (1, _BYTES)]
            scalars.extend(scalar for scalar in values if scalar)
    return step, wall_time, scalars


def _scalar(data: bytes) -> "tuple[bytes, float] | None":
    """Parse a Summary.Value message, and return its tag and number; None if it is not a scalar."""
    tag, number, plugin = b"", None, b""
    for key, value in _fields(data):
        if key == (1, _BYTES):
            tag = value
        elif key == (2, _FIXED32):
            (number,) = struct.unpack("<f", value)
        elif key == (8, _BYTES):
            number = _tensor_number(value)
        elif key == (9, _BYTES):
            plugin = _inner(_inner(value, 1), 1)
    return (tag, number) if number is not None and plugin in {b"", b"scalars"} else None


def _tensor_number(data: bytes) -> "float | None":
    """Parse a TensorProto message, and return its number; None unless it has one number and no dimensions."""
    parts = dict(_fields(data))
    layout, field = _TENSORS.get(parts.get((1, _VARINT), 0), ("", 0))
    dimensions = [key for key, _ in _fields(parts.get((2, _BYTES), b"")) if key == (2, _BYTES)]
    if not layout or dimensions:
        return None
    typed = (value for (number, kind), value in parts.items() if number == field and kind != _VARINT)
    content = parts.get((4, _BYTES)) or next(typed, b"")
    return float(struct.unpack(layout, content)[0]) if content else 0.0  # protobuf leaves a 0 out


def _inner(data: bytes, number: int) -> bytes:
    """Return the first bytes field with this number in a message; b"" if there is none."""
    return next((value for key, value in _fields(data) if key == (number, _BYTES)), b"")


def _fields(data: bytes) -> "Iterator[tuple[tuple[int, int], Any]]":
    """Yield the fields of a protobuf message as ((number, wire type), value): an int for a varint, bytes for others.

    Raises:
        ValueError: the message is malformed.
    """
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield (key >> 3, kind), value
            continue
        size, place = _varint(data, place) if kind == _BYTES else (_FIXED_SIZES.get(kind, len(data)), place)
        if place + size > len(data):
            raise ValueError("a field is longer than its message")
        yield (key >> 3, kind), data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> "tuple[int, int]":
    """Return the varint at this offset, and the offset after it."""
    value = 0
    for index, byte in enumerate(data[place : place + 10]):
        value |= (byte & 0x7F) << 7 * index
        if not byte & 0x80:
            return value, place + index + 1
    raise ValueError("a number without an end")


def _signed(value: int) -> int:
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value


if __name__ == "__main__":  # pragma: no cover - a test runs it as a process of its own
    json.dump(inspect(json.load(sys.stdin)), sys.stdout, allow_nan=False)
