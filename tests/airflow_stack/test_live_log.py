"""Tests of rank 0's lines in the task's log: their delay, and that each appears exactly once."""

from __future__ import annotations

import logging
import time
from statistics import median
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow_stack.conftest import Lab

logger = logging.getLogger(__name__)

LINES = 50_000


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["wait", "defer"])
def test_a_line_is_readable_within_two_seconds_of_being_printed(lab: Lab, mode: str) -> None:
    task = lab.start(f"{mode}_0", "live", f"seen-{mode}")
    task.wait("deferred" if mode == "defer" else "running")
    task.wait_for_line("printed at")

    delays = []
    for _ in range(8):
        time.sleep(0.5)
        printed = [float(line.split()[-1]) for line in task.lines() if line.startswith("printed at")]
        delays.append(time.time() - printed[-1])
    state = task.state
    lab.release(f"seen-{mode}")

    logger.info("%s: the newest line was %.2f s old (median), %.2f s at worst", mode, median(delays), max(delays))
    assert state == ("deferred" if mode == "defer" else "running")
    assert median(delays) < 2, f"the newest line was {max(delays):.2f} s old at worst: {sorted(delays)}"
    assert task.wait() == "success"


@pytest.mark.parametrize("mode", ["wait", "defer"])
def test_every_line_of_a_fast_and_ugly_log_is_there_exactly_once_and_in_order(lab: Lab, mode: str) -> None:
    task = lab.start(f"{mode}_0", "lines", str(LINES))

    assert task.wait() == "success"
    task.wait_for_line("rank 0 finished")  # a supervisor reports success before it has read the rest of a long log

    lines = task.lines()
    assert [line for line in lines if line.startswith("line ")] == [
        f"line {number:06d} of a long log, with some text behind it" for number in range(LINES)
    ]
    assert [line for line in lines if line.startswith("big ")] == ["big " + "0123456789abcdef" * 131072 + " end"]
    assert lines.count("caf\ufffd \ufffd\ufffd bytes") == 1
    assert lines.count("käse ✓ characters") == 1
    assert lines.count("rank 0 finished") == 1
