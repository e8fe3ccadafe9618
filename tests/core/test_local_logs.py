from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ptjob_provider.core.local.logs import LogFile, timestamp
from ptjob_provider.core.logs import CriReader

if TYPE_CHECKING:
    from pathlib import Path


def lines_of(path: Path) -> list[bytes]:
    return [line.split(b" ", 1)[1] for line in path.read_bytes().splitlines()]


def test_lines_are_written_as_the_kubelet_writes_them(tmp_path: Path) -> None:
    """A record has timestamp, stream, tag and text; an unfinished line is held back."""
    log = LogFile(tmp_path / "pod/container/0.log", clock=lambda: 1_700_000_000_123_456_789)

    log.write(b"one\ntw")
    before = (tmp_path / "pod/container/0.log").read_bytes()
    log.write(b"o\n\nrest")
    log.finish()

    assert before == b"2023-11-14T22:13:20.123456789Z stdout F one\n"
    assert lines_of(tmp_path / "pod/container/0.log") == [
        b"stdout F one",
        b"stdout F two",
        b"stdout F ",
        b"stdout F rest",
    ]


def test_a_clock_that_is_set_back_does_not_reorder_the_log(tmp_path: Path) -> None:
    """Each record is later than the one before."""
    times = iter([5_000_000_000, 1_000_000_000, 6_000_000_000])
    log = LogFile(tmp_path / "0.log", clock=lambda: next(times))
    for text in (b"a\n", b"b\n", b"c\n"):
        log.write(text)
    log.finish()

    stamps = [line.split()[0] for line in (tmp_path / "0.log").read_text().splitlines()]
    assert stamps == [timestamp(5_000_000_000), timestamp(5_000_000_001), timestamp(6_000_000_000)]


def test_the_end_of_the_log_is_two_kilobytes_or_eighty_lines(tmp_path: Path) -> None:
    """The smaller one counts; invalid bytes are replaced."""
    short, long = LogFile(tmp_path / "a.log"), LogFile(tmp_path / "b.log")
    short.write(b"".join(b"%d\n" % number for number in range(100)))
    long.write(b"\xff" + b"x" * 5000)

    assert short.message() == "".join(f"{number}\n" for number in range(20, 100))
    assert long.message() == "x" * 2048
    long.write(b"\xff")
    assert long.message().endswith("x\ufffd")
    short.finish()
    long.finish()


@given(st.lists(st.binary(max_size=40_000), max_size=6))
def test_what_was_written_can_be_read_back(tmp_path_factory: object, chunks: list[bytes]) -> None:
    """The joined pieces are the program's output, however it was split."""
    path = tmp_path_factory.mktemp("log") / "0.log"  # type: ignore[attr-defined]
    log = LogFile(path)
    for chunk in chunks:
        log.write(chunk)
    log.finish()

    reader = CriReader()
    pieces = [*reader.feed(path.read_bytes()), *reader.finish()]
    text = "".join(piece.text + ("" if piece.continues else "\n") for piece in pieces)
    expected = b"".join(chunks).decode("utf-8", errors="replace")
    assert text.removesuffix("\n") == "\n".join(
        line.removesuffix("\r") for line in expected.removesuffix("\n").split("\n")
    )
