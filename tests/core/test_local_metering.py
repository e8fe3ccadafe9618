"""What a job's supervisor tells of its processes where the disk does not take it, or where it stands still itself."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.history.peak_usage import PeakUsage
from ptjob_provider.core.local import usage
from ptjob_provider.core.local.processes import ProcessId
from ptjob_provider.core.local.store import JobFiles
from ptjob_provider.core.local.usage import Load, Meter, told

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """Let no file of this process grow, as on a disk that is full; pytest's own report would not grow either."""
    before, handled = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handled)


@pytest.fixture
def _is_the_pods_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process measured as the one of every pod."""
    monkeypatch.setattr(usage.processes, "marked", lambda *_, **__: [ProcessId.of(os.getpid())])


@pytest.mark.usefixtures("_is_the_pods_process")
def test_a_disk_that_is_full_costs_a_look_and_not_the_job(tmp_path: Path) -> None:
    """Nothing is raised into the supervisor's loop, and nothing is left lying on that disk."""
    files = JobFiles(tmp_path)
    meter = Meter("uid", files)

    with no_room():
        meter.look([("uses-master-0", "p")])

    assert told(files) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_is_the_pods_process")
def test_what_is_told_is_told_again(tmp_path: Path) -> None:
    """Of each replica that ran at a look."""
    files = JobFiles(tmp_path)

    Meter("uid", files).look([("uses-master-0", "p")])

    assert told(files)["uses-master-0"].samples == 1


def test_a_pod_without_a_process_is_not_measured(tmp_path: Path) -> None:
    """One whose processes have ended, or have not begun, used nothing that anybody measured: no sample, and no zero."""
    files = JobFiles(tmp_path)

    Meter("uid", files).look([("uses-master-0", "p")])

    assert told(files) == {}


@pytest.mark.usefixtures("_is_the_pods_process")
@pytest.mark.parametrize("looks", [("after", ""), ("", "before")])
def test_who_stands_still_while_looking_sees_no_core_that_is_not_there(
    looks: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was used meanwhile belongs to that time: after the first reading of a counter, or before the second.

    The process is a stand-in that uses one core all the time; a patch stands still where a machine may.
    """
    files, stands_still = JobFiles(tmp_path), iter(looks)

    def read(_: int) -> list[bytes]:
        when = next(stands_still)
        time.sleep(0.5 if when == "before" else 0.0)
        used = int(time.monotonic() * os.sysconf("SC_CLK_TCK"))
        time.sleep(0.5 if when == "after" else 0.0)
        return [b"0"] * 11 + [str(used).encode()] + [b"1"] * 12

    monkeypatch.setattr(usage, "_stat", read)
    meter = Meter("uid", files)
    while told(files).get("uses-master-0", PeakUsage()).samples < 2:
        meter.look([("uses-master-0", "p")])
        time.sleep(0.01)

    assert 0 < (told(files)["uses-master-0"].peak_cpu or 0) < 1.1


def test_cores_are_counted_over_the_longest_time_between_two_looks() -> None:
    """From before the first until after the second."""
    first, second = Load(seconds=1.0, began=10.0, ended=11.0), Load(seconds=3.0, began=13.0, ended=14.0)

    assert second.cores_since(first) == 0.5
    assert second.cores_since(None) is None


def test_what_processes_took_along_at_their_end_is_not_known() -> None:
    """Those that run now have used less than those that ran before: nothing was measured between the two looks."""
    before, now = Load(seconds=3.0, began=10.0, ended=11.0), Load(seconds=1.0, began=13.0, ended=14.0)

    assert now.cores_since(before) is None
