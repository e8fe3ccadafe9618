from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ptjob_provider.core.local.logs import LocalLog, LogFile, timestamp
from ptjob_provider.core.local.store import JobFiles

if TYPE_CHECKING:
    from pathlib import Path

    from ptjob_provider.core.logs import LogCursor, LogLine


def lines_of(path: Path) -> list[bytes]:
    return [line.split(b" ", 1)[1] for line in path.read_bytes().split(b"\n")[:-1]]


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
    now = [0]
    log = LogFile(tmp_path / "0.log", clock=lambda: now[0])
    for now[0], text in ((5_000_000_000, b"a\n"), (1_000_000_000, b"b\n"), (6_000_000_000, b"c\n")):
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


def test_a_line_without_an_end_is_written_as_far_as_it_goes_after_half_a_second(tmp_path: Path) -> None:
    """Its carriage return is kept back: it may be the first half of the line's end."""
    now = [0]
    log, path = LogFile(tmp_path / "0.log", clock=lambda: now[0]), tmp_path / "0.log"

    log.write(b"10%\r")
    now[0] = 499_999_999
    log.write_unfinished()
    before = path.read_bytes()
    now[0] = 500_000_000
    log.write_unfinished()
    now[0] = 999_999_999
    log.write_unfinished()
    log.write(b"20%")
    during = lines_of(path)
    log.write(b"\nbegun")
    log.finish()

    assert (before, during) == (b"", [b"stdout P 10%"])
    assert lines_of(path) == [b"stdout P 10%", b"stdout F \r20%", b"stdout F begun"]


def test_a_line_that_was_written_in_part_ends_with_its_program(tmp_path: Path) -> None:
    now = [0]
    log = LogFile(tmp_path / "0.log", clock=lambda: now[0])
    log.write(b"10%")
    now[0] = 500_000_000
    log.write_unfinished()
    log.finish()

    assert lines_of(tmp_path / "0.log") == [b"stdout P 10%", b"stdout F "]


@given(st.lists(st.tuples(st.binary(max_size=40_000), st.booleans()), max_size=6))
def test_written_output_can_be_read_back(tmp_path_factory: object, chunks: list[tuple[bytes, bool]]) -> None:
    """The joined pieces are the program's output, however it was split, and reading goes on after any of them."""
    files = JobFiles(tmp_path_factory.mktemp("job"))  # type: ignore[attr-defined]
    now = [0]
    log = LogFile(files.log("p", "pytorch"), clock=lambda: now[0])
    for chunk, is_slow in chunks:
        log.write(chunk)
        now[0] += 500_000_000 if is_slow else 1
        log.write_unfinished()
    log.finish()

    async def read(since: LogCursor | None = None) -> list[LogLine]:
        log = LocalLog(files, "p", job_uid="00000000-0000-0000-0000-000000000001")
        return [line async for line in log.lines(since=since, follow=True)]

    lines = asyncio.run(read())
    text = "".join(line.text + ("" if line.continues else "\n") for line in lines)
    expected = b"".join(chunk for chunk, _ in chunks).decode("utf-8", errors="replace")
    assert text.removesuffix("\n") == "\n".join(
        line.removesuffix("\r") for line in expected.removesuffix("\n").split("\n")
    )
    if lines:
        middle = len(lines) // 2
        assert asyncio.run(read(lines[middle].cursor)) == lines[middle + 1 :]
