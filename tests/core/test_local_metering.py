"""What a job's supervisor tells of its processes where the disk does not take it."""

from __future__ import annotations

import contextlib
import resource
import signal
from typing import TYPE_CHECKING

from ptjob_provider.core.local.files import JobFiles
from ptjob_provider.core.local.metering import Meter, told

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


def test_a_disk_that_is_full_costs_a_look_and_not_the_job(tmp_path: Path) -> None:
    """Nothing is raised into the supervisor's loop, and nothing is left lying on that disk."""
    files = JobFiles(tmp_path)
    meter = Meter("uid", files)

    with no_room():
        meter.look([("uses-master-0", "p")])

    assert told(files) == {}
    assert list(tmp_path.iterdir()) == []


def test_what_is_told_is_told_again(tmp_path: Path) -> None:
    """Of each replica that ran at a look."""
    files = JobFiles(tmp_path)

    Meter("uid", files).look([("uses-master-0", "p")])

    assert told(files)["uses-master-0"].samples == 1
