from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ptjob_provider.core.logs import (
    MAX_PIECE,
    STATE_SECONDS,
    STATES,
    LineCounter,
    LineSplitter,
    LogCursor,
    LogLine,
    Piece,
    StateFilter,
    nanoseconds,
)
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Iterable

T0 = "2026-11-20T10:00:00Z"
T1 = "2026-11-20T10:00:01.5Z"
T2 = "2026-11-20T10:00:02.000000001Z"

awkward_bytes = st.lists(
    st.one_of(
        st.binary(max_size=6),
        st.sampled_from(
            [b"\n", b"\r", b"\r\n", b"\r\r\n", b"a" * 7, "é€😀\u2028".encode(), b"\xe2\x82", b"\xf0\x9f", b"\xff"]
        ),
    ),
    max_size=30,
).map(b"".join)


def split(chunks: Iterable[bytes], max_piece: int = MAX_PIECE) -> list[Piece]:
    splitter = LineSplitter(max_piece)
    return [piece for chunk in chunks for piece in splitter.feed(chunk)] + splitter.finish()


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def joined(pieces: Iterable[Piece]) -> list[str]:
    return "".join(piece.text if piece.continues else f"{piece.text}\n" for piece in pieces).split("\n")[:-1]


def lines_of(data: bytes) -> list[str]:
    lines = data.decode("utf-8", errors="replace").split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def stamped(*timestamps: str) -> list[Piece]:
    return [Piece(timestamp=timestamp, text=f"line {index}") for index, timestamp in enumerate(timestamps)]


def count(
    pieces: Iterable[Piece],
    *,
    since: LogCursor | None = None,
    pod_uid: str = "p",
    container: str = "pytorch",
    restart_count: int = 0,
) -> list[LogLine]:
    counter = LineCounter(pod_uid=pod_uid, container=container, restart_count=restart_count, since=since)
    return list(counter.lines(pieces))


@given(awkward_bytes, st.lists(st.integers(min_value=0)), st.integers(min_value=1, max_value=9))
def test_any_chunking_of_any_bytes_gives_the_same_pieces(data: bytes, cuts: list[int], max_piece: int) -> None:
    """A reconnect or a slow pipe has no effect."""
    assert split(chunked(data, cuts), max_piece) == split([data], max_piece)


@given(awkward_bytes, st.lists(st.integers(min_value=0)), st.integers(min_value=1, max_value=9))
@example(b"caf\xc3\xa9\n\xe2\x82", [4], 9)
def test_joining_the_pieces_gives_the_lines(data: bytes, cuts: list[int], max_piece: int) -> None:
    """Nothing is lost between pieces or chunks, and no piece exceeds the limit."""
    pieces = split(chunked(data, cuts), max_piece)

    assert joined(pieces) == lines_of(data)
    assert all(len(piece.text) <= max_piece for piece in pieces)
    assert all(len(piece.text) == max_piece for piece in pieces if piece.continues)  # states come for long lines only


@pytest.mark.parametrize("before", ["", "a", "ab", "a" * 80, "a" * 85])
@pytest.mark.parametrize("block", ["#", "█"])
def test_the_states_of_a_bar_come_while_it_is_written(block: str, before: str) -> None:
    """A node hands them over in parts of 16 KiB; each piece is whole states, however the parts are cut."""
    states = before + "".join(f"\r{number:4}/9999 {block * 90}" for number in range(1000))
    data = states.encode() + b"\rend\n"
    part = 16 * 1024
    splitter = LineSplitter()

    early = splitter.feed(data[:part])
    late = splitter.feed(data[part:])

    assert early == [Piece(text=data[: data.rindex(b"\r", 0, STATES)].decode(), continues=True)]
    assert all(piece.text.startswith("\r") and len(piece.text.encode()) <= STATES for piece in late)
    assert early + late == split([data])
    assert joined(early + late) == [states + "\rend"]


def filtered(*pieces: str, seconds: float = 1.0) -> list[str]:
    """Return the lines of a log after these pieces, one each so many seconds; a line feed ends a line."""
    times = iter(range(1000))
    states = StateFilter(clock=lambda: next(times) * seconds)
    shown: list[LogLine] = []
    for text in pieces:
        (line,) = count([Piece(text=text.removesuffix("\n"), continues=not text.endswith("\n"), timestamp=T0)])
        shown += states.take(line)
    return [line.text + ("…" if line.continues else "") for line in [*shown, *states.rest()]]


def test_a_bar_is_a_line_in_some_seconds_and_its_last_state() -> None:
    """Its thousands of states would fill a log, and hide everything else."""
    bar = [f"\r{percent}%|#| {percent}/100" for percent in range(100)]

    shown = filtered(*bar, "\r100%|#| 100/100\n", "after\n", seconds=0.1)

    assert shown[0] == "0%|#| 0/100"
    assert shown[-2:] == ["100%|#| 100/100", "after"]
    assert len(shown) <= 100 * 0.2 / STATE_SECONDS + 4


FILTERED: dict[str, tuple[list[str], list[str]]] = {
    "plain lines and long ones stay": (["a\n", "b", "c\n", "\n"], ["a", "b…", "c", ""]),
    "one piece has all states": (["\r1%\r2%\r3%\n"], ["3%"]),
    "blanks that remove a bar": (["\r 1/2\r 2/2", "\r    \n", "\r   \n"], [" 2/2", ""]),
    "a line over a bar": (["\r1%\r      \r{'loss': 0.5}\n", "\r2%\n"], ["{'loss': 0.5}", "2%"]),
    "words that a bar overwrites": (
        ["warning: slow", "\r1%", "\rCUDA error\r2%\n"],
        ["warning: slow…", "1%", "CUDA error", "2%"],
    ),
    "an error right after a bar": (["\r1%", "\r2%", "Traceback:\n", "  File x\n"], ["1%", "2%Traceback:", "  File x"]),
    "a state that came in two pieces": (["\r1%|", " 1/100", "\r2%| 2/100\n"], ["1%|", "2%| 2/100"]),
    "the log ends within a bar": (["\r1%", "\r2%"], ["1%", "2%"]),
    "a state that is shown already": (["\r1%", "\n"], ["1%"]),
    "a carriage return before the line's end": (["x\r\n"], ["x"]),
    "a long line that was a bar": (["\r1%", "\r" + "x" * MAX_PIECE, "y\n"], ["1%", "x" * MAX_PIECE + "…", "y"]),
}


@each_row(("pieces", "shown"), FILTERED.values())
def test_only_states_of_bars_are_left_out(pieces: list[str], shown: list[str]) -> None:
    assert filtered(*pieces) == shown


def test_a_notice_comes_after_the_last_state_before_it() -> None:
    states = StateFilter(clock=lambda: 0.0)
    first, second = count(
        [Piece(text="\r1%", continues=True, timestamp=T0), Piece(text="\r2%", continues=True, timestamp=T1)]
    )
    notice = LogLine(text="started again", timestamp=T1, cursor=second.cursor, notice=True)

    shown = [line for each in (first, second, notice) for line in states.take(each)]

    assert [line.text for line in shown] == ["1%", "2%", "started again"]
    assert shown[1].cursor == second.cursor, "a reader that goes on from here misses nothing"


@given(st.lists(st.text(alphabet="ab\r ", max_size=8)), st.floats(min_value=0, max_value=9))
def test_nothing_but_states_of_bars_is_lost(texts: list[str], seconds: float) -> None:
    """Whatever is neither blank nor a bar's state is there once and in order."""
    shown = filtered(*texts, "\n", seconds=seconds)

    assert "".join(shown).translate({ord(" "): None, ord("…"): None}) == "".join(texts).translate(
        {ord(" "): None, ord("\r"): None}
    )


def test_a_long_line_comes_in_pieces_while_it_is_written() -> None:
    """A line of megabytes is not held back until it ends; its last piece is marked."""
    splitter = LineSplitter()

    early = splitter.feed(b"x" * (2 * MAX_PIECE + 1))
    late = splitter.feed(b"y\n")

    assert [(len(piece.text), piece.continues) for piece in early] == [(MAX_PIECE, True), (MAX_PIECE, True)]
    assert late == [Piece(text="xy")]


def test_the_line_end_of_a_line_that_just_fits_makes_no_further_piece() -> None:
    r"""Neither `\n` nor `\r\n` after a full piece is a piece of its own."""
    splitter = LineSplitter(max_piece=4)

    assert splitter.feed(b"abcd\r") == []
    assert splitter.feed(b"\n") == [Piece(text="abcd")]
    assert splitter.feed(b"abcd\r") == []
    assert splitter.feed(b"e\n") == [Piece(text="abcd", continues=True), Piece(text="\re")]


def test_a_splitter_is_as_new_after_its_end() -> None:
    """The first line of the next container begins empty."""
    splitter = LineSplitter()
    splitter.feed(b"half\xe2")

    assert splitter.finish() == [Piece(text="half\ufffd")]
    assert splitter.finish() == []
    assert splitter.feed(b"whole\n") == [Piece(text="whole")]


@each_row(
    ("earlier", "later"),
    [
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00.000000001Z"),
        ("2026-11-20T10:00:00.09Z", "2026-11-20T10:00:00.1Z"),
        ("2026-11-20T10:00:00.123456788Z", "2026-11-20T10:00:00.123456789Z"),
        ("2026-11-20T18:00:00+08:00", "2026-11-20T10:00:00.5Z"),
        ("1969-12-31T23:59:59.9Z", "1970-01-01T00:00:00Z"),
    ],
)
def test_instants_compare_whatever_their_digits_and_offsets_are(earlier: str, later: str) -> None:
    assert nanoseconds(earlier) < nanoseconds(later)


def test_the_same_instant_written_differently_is_equal() -> None:
    """Go omits trailing zeros, the kubelet writes them."""
    assert nanoseconds("2026-11-20T10:00:00.5Z") == nanoseconds("2026-11-20T18:00:00.500000000+08:00")


@each_row("text", ["", "2026-11-20", "2026-11-20T10:00:00", "2026-11-20T10:00:00.1234567890Z", f"{T0}\n"])
def test_a_text_that_is_no_instant_is_refused(text: str) -> None:
    """It could not be compared."""
    with pytest.raises(ValueError, match="not an RFC 3339 instant"):
        nanoseconds(text)


def test_lines_are_counted_within_one_timestamp() -> None:
    """Different notations of one instant count as one."""
    lines = count(stamped(T0, T0, T1, "2026-11-20T10:00:01.500Z", T2))

    assert [line.cursor.ordinal for line in lines] == [0, 1, 0, 1, 0]
    assert not any(line.notice for line in lines)
    assert lines[1] == LogLine(
        text="line 1",
        timestamp=T0,
        cursor=LogCursor(pod_uid="p", container="pytorch", restart_count=0, timestamp=T0, ordinal=1),
    )


instants = st.lists(st.sampled_from([T0, T1, "2026-11-20T10:00:01.500000000Z", T2]), min_size=1, max_size=12).map(
    lambda chosen: sorted(chosen, key=nanoseconds)
)


@given(instants, st.integers(min_value=0), st.integers(min_value=0, max_value=2))
def test_reading_an_overlap_again_gives_exactly_the_rest(
    timestamps: list[str], stopped: int, skipped_seconds: int
) -> None:
    """If the server goes back to a whole second before the cursor, no line is repeated or missing."""
    whole = count(stamped(*timestamps))
    last = whole[stopped % len(whole)]
    since_second = f"2026-11-20T10:00:0{min(skipped_seconds, int(last.timestamp[18]))}"
    overlap = [line for line in whole if line.timestamp >= since_second]

    again = count([Piece(timestamp=line.timestamp, text=line.text) for line in overlap], since=last.cursor)

    assert again == whole[whole.index(last) + 1 :]


def test_a_line_whose_cursor_has_other_digits_is_recognised() -> None:
    """The kubelet writes nine digits where containerd writes one."""
    with_zeros = "2026-11-20T10:00:01.500000000Z"
    since = LogCursor(pod_uid="p", container="pytorch", restart_count=0, timestamp=with_zeros, ordinal=0)

    assert [line.text for line in count(stamped(T0, T1, T1), since=since)] == ["line 2"]


@each_row(("timestamps", "place"), [((T0, T2, T1, T0), 1), ((T0, T2, T1, T2), 2)])
def test_lines_after_the_cursors_are_new_whatever_their_timestamps_are(timestamps: tuple[str, ...], place: int) -> None:
    """A clock goes back, and lines of two streams within microseconds are out of order."""
    whole = count(stamped(*timestamps))

    assert count(stamped(*timestamps), since=whole[place].cursor) == whole[place + 1 :]


@given(st.integers(min_value=1, max_value=9), st.integers(min_value=0), st.integers(min_value=0))
def test_a_line_is_missed_exactly_when_it_and_all_before_it_were_cut_off(length: int, stopped: int, cut: int) -> None:
    """Rotation removes the beginning of a log at any point; the rest comes once and in order."""
    whole = count(stamped(*(f"2026-11-20T10:00:0{number}Z" for number in range(length))))
    place = stopped % len(whole)
    kept = whole[cut % (len(whole) + 1) :]
    counter = LineCounter(pod_uid="p", container="pytorch", restart_count=0, since=whole[place].cursor)

    again = list(counter.lines([Piece(timestamp=line.timestamp, text=line.text) for line in kept]))

    is_there, is_anything_later = whole[place] in kept, bool(again)
    assert again == [line for line in kept if line in whole[place + 1 :]]
    assert counter.has_reached is (True if is_there else False if is_anything_later else None)


@each_row(
    ("where", "texts"),
    [
        ({"pod_uid": "another"}, ["line 0", "line 1"]),
        ({"container": "istio-proxy"}, ["line 0", "line 1"]),
        ({"restart_count": 2}, ["line 0", "line 1"]),
        ({"restart_count": 1}, ["line 1"]),
        ({"restart_count": 0}, []),
    ],
)
def test_a_cursor_holds_for_its_own_pod_container_and_run(where: dict[str, Any], texts: list[str]) -> None:
    """Another pod or a later run is new from its first line; an earlier run is already read."""
    since = LogCursor(pod_uid="p", container="pytorch", restart_count=1, timestamp=T0, ordinal=0)

    assert [line.text for line in count(stamped(T0, T1), since=since, **where)] == texts


def test_a_counter_goes_on_between_chunks() -> None:
    counter = LineCounter(pod_uid="p", container="pytorch", restart_count=0)

    lines = [line for _ in range(3) for line in counter.lines(stamped(T0))]

    assert [line.cursor.ordinal for line in lines] == [0, 1, 2]
