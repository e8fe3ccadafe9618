"""Split logs into lines, give each line a cursor, and drop lines that were read before.

Pure: opens no file or stream. A cursor has a line's timestamp, and an ordinal for lines of the same timestamp. A reader
resumes by reading some lines again, because the kubelet serves logs since a whole second, and drops exactly those that
it has read before. No line is lost; if a node's clock was set back, lines may be repeated.
"""

from __future__ import annotations

import codecs
import re
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from ptjob_provider.core.versions import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_PIECE = 64 * 1024
"""Maximum characters of a piece; longer lines are cut into several pieces."""

STATES = 16 * 1024 - 4
"""Bytes of a line after which a progress bar's states come as a piece: containerd hands over 16 KiB of a line that has
not ended, and the last of them may be a carriage return or a part of a character."""

STATE_SECONDS = 5.0
"""Minimum seconds between two states of a line that overwrites itself."""

_INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000_000
"""Nanoseconds of a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCursor(Record):
    """Position of one line, or of a piece of a long line: everything up to and including it has been read.

    Attributes:
        pod_uid: the pod's uid; another pod of the same name has another log.
        container: the container's name in the pod.
        restart_count: the container's restarts before it wrote the line.
        timestamp: RFC 3339 with up to nine fractional digits, as in the log.
        ordinal: index among the lines and pieces with this timestamp, from 0.
    """

    pod_uid: str
    container: str
    restart_count: int
    timestamp: str
    ordinal: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """One line of a container's log, or one piece of a line longer than MAX_PIECE.

    Attributes:
        text: the text without its line end; at most MAX_PIECE characters.
        timestamp: the timestamp of the line's beginning.
        cursor: its position; for a notice, the position of the line before it.
        continues: this is a piece that does not end its line; the next piece follows.
        notice: the text is a sentence about the log, not a line of the program.
    """

    text: str
    timestamp: str
    cursor: LogCursor
    continues: bool = False
    notice: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A line, or a piece of one; `continues` as in `LogLine`, and the line's timestamp or, as long as unknown, ""."""

    text: str
    continues: bool = False
    timestamp: str = ""


class LineSplitter:
    r"""Splits a stream of bytes into lines, however the stream is cut into chunks.

    A `\n` ends a line and one `\r` before it is dropped; no other character ends a line. Bytes that are not UTF-8
    become U+FFFD. Buffers at most one piece and the current chunk. Where a line overwrites itself, a piece is whole
    states.
    """

    def __init__(self, max_piece: int = MAX_PIECE) -> None:
        self._max_piece = max_piece
        self._one_piece = min(max_piece, STATES // 4)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pending = ""

    def feed(self, chunk: bytes) -> list[Piece]:
        """Return the lines that this chunk completes, and the complete pieces of an unfinished long line."""
        *lines, self._pending = (self._pending + self._decoder.decode(chunk)).split("\n")
        pieces = [piece for line in lines for piece in self._cut(line)]
        return pieces + self._take_certain()

    def finish(self) -> list[Piece]:
        """Return the remaining text without a line end, and reset the splitter.

        Call this only when the stream has ended for good: an unfinished line would be taken for a whole line.
        """
        rest = self._pending + self._decoder.decode(b"", final=True)
        self._pending = ""
        return list(self._cut(rest)) if rest else []

    def _cut(self, line: str) -> Iterator[Piece]:
        text = line.removesuffix("\r")
        if len(text) <= self._one_piece:  # nearly all lines: a training may write 50,000 a second
            yield Piece(text=text)
            return
        *pieces, rest = self._pieces(text)
        yield from pieces
        yield replace(rest, continues=False)

    def _take_certain(self) -> list[Piece]:
        text = self._pending.removesuffix("\r")  # a carriage return may be the first half of the line's end
        *pieces, _ = self._pieces(text)
        self._pending = self._pending[sum(len(piece.text) for piece in pieces) :]
        return pieces

    def _pieces(self, text: str) -> Iterator[Piece]:
        """Yield the pieces of a line so far; where the last one ends is not known yet."""
        start = 0
        while True:
            end = start + (_length_of_states(text[start : start + STATES]) or self._max_piece)
            yield Piece(text=text[start:end], continues=True)
            if end >= len(text):
                return
            start = end


def _length_of_states(text: str) -> int:
    """Return the characters of the whole states in the first STATES bytes; 0 if there are fewer bytes, or no state."""
    part = text.encode()[:STATES]
    return len(part[: max(part.rfind(b"\r", 1), 0)].decode()) if len(part) == STATES else 0


class LineCounter:
    """Assigns cursors to the lines of one run of a container, and drops the lines up to the cursor `since`.

    The input must begin at or before the first line with the timestamp of `since`. Lines up to the line of `since` were
    read before, and lines after it are new, whatever their timestamps: two streams that are written at once are a few
    microseconds out of order. If the line of `since` does not appear, the first line with a later timestamp is new. If
    `since` is of another pod or container, nothing is dropped; if it is of a later run of the container, everything is.

    Attributes:
        has_reached: True once the line of `since` has appeared; False if a later line has appeared without it, because
            lines are missing in between; None as long as neither has.
    """

    def __init__(self, *, pod_uid: str, container: str, restart_count: int, since: LogCursor | None = None) -> None:
        self._pod_uid = pod_uid
        self._container = container
        self._restart_count = restart_count
        self._place = (-1, -1)
        self._since = since if since is not None and self._is_reached_by(since) else None
        self.has_reached: bool | None = None

    def lines(self, pieces: Iterable[Piece]) -> Iterator[LogLine]:
        """Yield those of the next pieces that are new, as lines with their cursors."""
        taken = list(pieces)
        positions = [self._count(piece.timestamp) for piece in taken]
        for number in range(self._number_of_read(positions), len(taken)):
            yield self._line(taken[number], positions[number][1])

    def _is_reached_by(self, since: LogCursor) -> bool:
        same_log = (since.pod_uid, since.container) == (self._pod_uid, self._container)
        return same_log and since.restart_count >= self._restart_count

    def _count(self, timestamp: str) -> tuple[int, int]:
        instant, (before, ordinal) = nanoseconds(timestamp), self._place
        self._place = (instant, ordinal + 1 if instant == before else 0)
        return self._place

    def _number_of_read(self, places: list[tuple[int, int]]) -> int:
        """Return how many of these positions were read before; the rest are new."""
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

    def _line(self, piece: Piece, ordinal: int) -> LogLine:
        cursor = LogCursor(
            pod_uid=self._pod_uid,
            container=self._container,
            restart_count=self._restart_count,
            timestamp=piece.timestamp,
            ordinal=ordinal,
        )
        return LogLine(text=piece.text, timestamp=piece.timestamp, cursor=cursor, continues=piece.continues)


def last_state(text: str) -> str:
    """Return what a line shows that overwrites itself by carriage returns."""
    return text.rstrip("\r").rpartition("\r")[2] if "\r" in text else text


_BAR = re.compile(r"\d%|\d/\d|^\s*$")
"""A state that the next one may replace without a loss: of a progress bar, or blank."""


class StateFilter:
    """Leaves out states of lines that overwrite themselves, as progress bars do: at most one in some seconds is kept.

    Each is a line of its own. The last state of a line always stays, and so does what is not of a bar.

    Args:
        clock: seconds; the time at which a log was read counts, because a node gives all states of a line one time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown_at = float("-inf")
        self._last: LogLine | None = None
        self._shown: str | None = None
        self._begun = self._newest = ""

    def take(self, line: LogLine) -> Iterable[LogLine]:
        """Return what the log shows of the next line, or of the next piece of a long one."""
        return (line,) if self._last is None and "\r" not in line.text else self._shown_of(line)

    def _shown_of(self, line: LogLine) -> Iterator[LogLine]:
        if line.notice:
            yield from self.rest()
            yield line
            return
        text = self._begun + line.text
        *over, begun = (text if line.continues else text.rstrip("\r")).split("\r")
        for state in over:
            if _BAR.search(state):
                self._newest = state if state.strip() else self._newest
            else:
                yield replace(line, text=state, continues=False)
        if line.continues and len(begun) < MAX_PIECE:
            yield from self._hold(line, begun)
        else:
            text, shown = begun if begun.strip() else self._newest, self._shown
            self._forget()
            if shown is None or text not in ("", shown):
                yield replace(line, text=text)

    def rest(self) -> Iterator[LogLine]:
        """Yield the last state, if it has not been shown: something else follows, or nothing any more."""
        text = self._begun if self._begun.strip() else self._newest
        if self._last is not None and text and text != self._shown:
            yield replace(self._last, text=text, continues=False)
            self._shown, self._newest, self._begun = text, "", ""

    def _hold(self, line: LogLine, begun: str) -> Iterator[LogLine]:
        self._last, self._begun = line, begun
        is_bar = _BAR.search(begun or self._newest) and (begun.strip() or self._newest)
        if is_bar and self._clock() >= self._shown_at + STATE_SECONDS:
            self._shown_at = self._clock()
            yield from self.rest()

    def _forget(self) -> None:
        self._last, self._begun, self._newest, self._shown = None, "", "", None


def nanoseconds(timestamp: str) -> int:
    """Return an RFC 3339 instant as nanoseconds since 1970, to compare instants of any number of digits and offset.

    Raises:
        ValueError: the text is not an instant.
    """
    match = _INSTANT.fullmatch(timestamp)
    if match is None:
        raise ValueError(f"not an RFC 3339 instant: {timestamp[:80]!r}")
    second, fraction, offset = match.groups("")
    return _seconds(second + offset) * _SECOND + int(fraction.ljust(9, "0"))


@lru_cache(maxsize=64)  # lines of one second follow each other
def _seconds(second: str) -> int:
    return (datetime.fromisoformat(second) - _EPOCH) // timedelta(seconds=1)


def _first(places: list[tuple[int, int]], *, after: tuple[int, int]) -> int:
    """Return the index of the first position after this one; the number of positions if there is none."""
    return next((number for number, place in enumerate(places) if place > after), len(places))
