"""When a slow reader has to doubt that its stream is whole, and when it has not."""

from __future__ import annotations

import pytest

from ptjob_provider.core.kubernetes.podlog.pace import Pace

MUCH = 100_000
FULL = 7_000_000
EARLY, LATER = "2026-11-20T10:00:00.5Z", "2026-11-20T10:00:20.5Z"


def paced(*chunks: tuple[int, float, float]) -> Pace:
    """Return the pace after these chunks: size, seconds waited, instant."""
    pace = Pace(0.0)
    for size, waited, now in chunks:
        pace.take(size, waited=waited, now=now)
    return pace


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([(MUCH, 0.0, 10.0)], 0.5),
        ([(100, 0.0, 10.0)], None),
        ([(MUCH, 0.0, 1.0), (100, 0.9, 2.0), (MUCH, 0.0, 10.0)], None),
        ([(100, 0.9, 1.0), (FULL, 0.0, 10.0)], 60.0),
    ],
    ids=["a long way to the end", "nothing held the kubelet up", "it has been at the end", "a file may be full"],
)
def test_a_silence_is_doubted_where_a_file_may_have_been_begun(
    chunks: list[tuple[int, float, float]], expected: float | None
) -> None:
    """The kubelet does not see what is begun before it has been at the end once; old ones do not see it at all."""
    assert paced(*chunks).patience(10.0) == expected


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([(MUCH, 0.0, 10.0)], True),
        ([(MUCH, 0.0, 2.0)], False),
        ([(100, 0.0, 10.0)], False),
        ([(MUCH, 15.0, 30.0)], False),
    ],
    ids=["behind", "sooner than two rotations", "nothing held the kubelet up", "waited for"],
)
def test_a_jump_that_nobody_waited_for_is_doubtful(chunks: list[tuple[int, float, float]], expected: bool) -> None:  # noqa: FBT001
    """Twenty seconds between two lines that came at once: a program that was silent, or a file that is missing."""
    pace = paced(*chunks)
    pace.skips_before(EARLY)

    assert pace.skips_before(LATER) is expected


def test_lines_that_follow_each_other_are_not_doubted() -> None:
    """However far behind the reader is; nor is the first one, before which nothing is known."""
    pace = paced((MUCH, 0.0, 10.0))

    assert not any(pace.skips_before(f"2026-11-20T10:00:0{second}Z") for second in range(3))
