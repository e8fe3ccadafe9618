"""Bytes → lines; a line's place in its container's log; what of a log is new.

Pure: it opens no file and no stream. A line's place is its timestamp, and its ordinal where several lines have the
same one, so that a reader may fetch an overlap again (the kubelet serves whole seconds) and drop exactly what it had.
Nothing that a source delivers is lost to that: where a node's clock was set back, lines may come twice instead.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.versions import known_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_PIECE = 64 * 1024
"""Characters that one piece of a line has at most; longer lines come in several pieces."""

_INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII)
_RECORD = re.compile(rb"(\S+) (stdout|stderr) ([^ ]+)(?: (.*))?", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_TEXT = "1970-01-01T00:00:00Z"
_SECOND = 1_000_000_000
"""In nanoseconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCursor:
    """The place of one line (or piece of a long line): everything up to and including it has been read.

    Attributes:
        pod_uid: another pod is another log, even under the same name.
        container: its name in the pod.
        restart_count: how often the container had been restarted when it wrote the line.
        timestamp: RFC 3339 with up to nine fractional digits, as the log has it.
        ordinal: counts the lines and pieces that came with that timestamp, from 0.
    """

    pod_uid: str
    container: str
    restart_count: int
    timestamp: str
    ordinal: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` returned; a missing key raises TypeError."""
        return cls(**known_fields(cls, fields))


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """One line of a container's log, or one piece of a line that is longer than MAX_PIECE.

    Attributes:
        text: without its line end; never longer than MAX_PIECE.
        timestamp: when the container wrote the line's beginning.
        cursor: its place; for a notice, the place that it stands behind.
        continues: the next line of this log goes on where this text ends, without a line end between them.
        notice: a sentence of ours about the log, not a line of the program.
    """

    text: str
    timestamp: str
    cursor: LogCursor
    continues: bool = False
    notice: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A line or a piece of one; `continues` as in `LogLine`."""

    text: str
    continues: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class StampedPiece:
    """A piece and the timestamp that its line came with."""

    timestamp: str
    text: str
    continues: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CriRecord:
    """One record of a log file in the kubelet's format; a partial one's line goes on in the stream's next record."""

    timestamp: str
    stream: str
    partial: bool
    payload: bytes


class LineSplitter:
    r"""Cuts a stream of bytes into lines, however the stream is chunked.

    A `\n` ends a line and one `\r` at a line's end is dropped; no other character ends a line. Bytes that are not UTF-8
    become U+FFFD. Holds at most one piece and the chunk that it was given.
    """

    def __init__(self, max_piece: int = MAX_PIECE) -> None:
        self._max_piece = max_piece
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pending = ""

    def feed(self, chunk: bytes) -> list[Piece]:
        """Return the lines that this chunk finishes, and of an unfinished long line the pieces that are certain."""
        *lines, self._pending = (self._pending + self._decoder.decode(chunk)).split("\n")
        pieces = [piece for line in lines for piece in self._cut(line)]
        return pieces + self._take_certain()

    def finish(self) -> list[Piece]:
        """Return what is left of a line without an end; afterwards the splitter is as new.

        Only for a stream that has really ended: a line that is still being written would be counted as a whole one.
        """
        rest = self._pending + self._decoder.decode(b"", final=True)
        self._pending = ""
        return list(self._cut(rest)) if rest else []

    def _cut(self, line: str) -> Iterator[Piece]:
        text = line.removesuffix("\r")
        size = self._max_piece
        for start in range(0, max(len(text), 1), size):
            yield Piece(text=text[start : start + size], continues=start + size < len(text))

    def _take_certain(self) -> list[Piece]:
        size = self._max_piece
        text = self._pending.removesuffix("\r")  # it may turn out to belong to the line's end
        certain = max(len(text) - 1, 0) // size * size
        self._pending = self._pending[certain:]
        return [Piece(text=text[start : start + size], continues=True) for start in range(0, certain, size)]


class CriReader:
    """Reads a log file in the kubelet's format, however it is chunked, into pieces with timestamps.

    Partial records of a stream are joined; stdout and stderr do not cut into each other's lines. A piece has the
    timestamp of the record that its line began in or, when the other stream wrote in between, of the first one after
    that, so that timestamps go back only where the writer's clock did. A record that is none (its writer died halfway)
    becomes a line with the timestamp before it. Holds one record, whose length the file's writer bounds, and a piece
    for each stream.
    """

    def __init__(self, max_piece: int = MAX_PIECE) -> None:
        self._max_piece = max_piece
        self._rest = b""
        self._splitters: dict[str, LineSplitter] = {}
        self._stream = ""
        self._began = ""
        self._seen = _EPOCH_TEXT

    def feed(self, chunk: bytes) -> list[StampedPiece]:
        """Return the lines, and the pieces of long lines, that this chunk finishes."""
        *records, self._rest = (self._rest + chunk).split(b"\n")
        return [piece for record in records for piece in self._read(record)]

    def finish(self) -> list[StampedPiece]:
        """Return what the container left without a line end; only for a container that has ended."""
        rest, self._rest = self._rest, b""
        pieces = self._read(rest) if rest else []
        left = [piece for splitter in self._splitters.values() for piece in splitter.finish()]
        return pieces + _stamped(left, self._seen)

    def _read(self, raw: bytes) -> list[StampedPiece]:
        record = _record_or_text(raw, self._seen)
        if record.stream != self._stream or not self._began:
            self._stream, self._began = record.stream, record.timestamp
        began, self._seen = self._began, record.timestamp
        if not record.partial:
            self._began = ""
        splitter = self._splitters.setdefault(record.stream, LineSplitter(self._max_piece))
        return _stamped(splitter.feed(record.payload if record.partial else record.payload + b"\n"), began)


class LineCounter:
    """Gives every line of one run of a container its cursor, and drops the lines that are not after `since`.

    The lines must begin at or before the first one that has the timestamp of `since`. What is dropped ends with the
    line of `since`: what stands before it in the log had been read, and what comes behind it is new, whatever their
    timestamps say (two streams that are written at once are a few microseconds out of order). Where that line does not
    come, the first one with a later timestamp is new. A cursor of another pod or container drops nothing; one of a
    later run of the container drops everything.

    Attributes:
        has_reached: whether the line of `since` has come (True), or a later one without it (False): what was between
            those two is not there any more. None as long as neither came.
        is_unsteady: whether the writer's clock was set back by a second or more.
    """

    def __init__(self, *, pod_uid: str, container: str, restart_count: int, since: LogCursor | None = None) -> None:
        self._pod_uid = pod_uid
        self._container = container
        self._restart_count = restart_count
        self._place = (-1, -1)
        self._since = since if since is not None and self._is_reached_by(since) else None
        self.has_reached: bool | None = None
        self.is_unsteady = False

    def lines(self, pieces: Iterable[StampedPiece]) -> Iterator[LogLine]:
        """Yield those of the next pieces that are new, with their cursors."""
        found = list(pieces)
        places = [self._count(piece.timestamp) for piece in found]
        for number in range(self._number_of_read(places), len(found)):
            yield self._line(found[number], places[number][1])

    def _is_reached_by(self, since: LogCursor) -> bool:
        same_log = (since.pod_uid, since.container) == (self._pod_uid, self._container)
        return same_log and since.restart_count >= self._restart_count

    def _count(self, timestamp: str) -> tuple[int, int]:
        instant, (before, ordinal) = nanoseconds(timestamp), self._place
        self._place = (instant, ordinal + 1 if instant == before else 0)
        self.is_unsteady = self.is_unsteady or instant <= before - _SECOND
        return self._place

    def _number_of_read(self, places: list[tuple[int, int]]) -> int:
        """Return how many of these places had been read; the new ones are the rest."""
        if self._since is None:
            return 0
        if self._since.restart_count > self._restart_count:
            return len(places)
        last = nanoseconds(self._since.timestamp), self._since.ordinal
        number = places.index(last) if last in places else _first(places, after=last)
        if number == len(places):
            return number
        self.has_reached = places[number] == last
        self._since = None
        return number + self.has_reached

    def _line(self, piece: StampedPiece, ordinal: int) -> LogLine:
        cursor = LogCursor(
            pod_uid=self._pod_uid,
            container=self._container,
            restart_count=self._restart_count,
            timestamp=piece.timestamp,
            ordinal=ordinal,
        )
        return LogLine(text=piece.text, timestamp=piece.timestamp, cursor=cursor, continues=piece.continues)


def parse_cri(line: bytes) -> CriRecord:
    """Read one record, `<RFC3339nano> stdout|stderr F|P text`, without its line end.

    Raises:
        ValueError: it is not one.
    """
    match = _RECORD.fullmatch(line)
    if match is None:
        raise ValueError(f"not a record of a container's log: {line[:80]!r}")
    timestamp, stream, tags, payload = match.groups(b"")
    text = timestamp.decode("ascii", errors="replace")
    nanoseconds(text)
    return CriRecord(timestamp=text, stream=stream.decode(), partial=tags.split(b":")[0] == b"P", payload=payload)


def nanoseconds(timestamp: str) -> int:
    """Return the RFC 3339 instant as nanoseconds since 1970: comparable whatever its fractional digits and offset are.

    Raises:
        ValueError: it is not an instant.
    """
    match = _INSTANT.fullmatch(timestamp)
    if match is None:
        raise ValueError(f"not an RFC 3339 instant: {timestamp[:80]!r}")
    second, fraction, offset = match.groups("")
    whole = (datetime.fromisoformat(second + offset) - _EPOCH) // timedelta(seconds=1)
    return whole * _SECOND + int(fraction.ljust(9, "0"))


def _first(places: list[tuple[int, int]], *, after: tuple[int, int]) -> int:
    """Return the number of the first place after this one; the number of places if there is none."""
    return next((number for number, place in enumerate(places) if place > after), len(places))


def _stamped(pieces: Iterable[Piece], timestamp: str) -> list[StampedPiece]:
    return [StampedPiece(timestamp=timestamp, text=piece.text, continues=piece.continues) for piece in pieces]


def _record_or_text(raw: bytes, timestamp: str) -> CriRecord:
    try:
        return parse_cri(raw)
    except ValueError:
        return CriRecord(timestamp=timestamp, stream="stdout", partial=False, payload=raw)
