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
