"""When what is due for a job of this machine is done: not before everybody who follows it has read how it ended."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ptjob_provider.core.local.backend import Looking
from ptjob_provider.core.local.store import JobFiles

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_last_state_is_read_before_what_is_due_is_done(tmp_path: Path) -> None:
    """A time to live of zero removes the job: whoever had not read its end by then would take it for deleted."""
    files = JobFiles(tmp_path / "jobs/default/digits")
    files.path.mkdir(parents=True)
    files.snapshots.append(1, {"status": {}})
    read: list[int] = []
    read_before: list[list[int]] = []
    loop, is_done = asyncio.get_running_loop(), asyncio.Event()

    def do_what_is_due(_: JobFiles) -> None:
        read_before.append(list(read))
        loop.call_soon_threadsafe(is_done.set)

    looking = Looking(do_what_is_due)

    with looking.following(files) as job:
        states = job.states()
        read.append((await anext(states)).number)
        files.snapshots.append(2, {"status": {}})
        task = asyncio.create_task(looking.run())
        state = await anext(states)
        await asyncio.sleep(0.05)  # its files are on a disk
        read.append(state.number)
        await is_done.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    assert read_before[0] == [1, 2]
