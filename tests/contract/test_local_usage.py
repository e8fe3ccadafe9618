"""Tests of the usage of a job's processes on this machine, during its run and after its end."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes import ListSink
from local_world import environment
from ptjob_provider.core.local import LocalBackend, LocalConfig
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.snapshot import look
from ptjob_provider.core.run.submit import Submission
from worlds import STATE, World, held

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ptjob_provider.core.history.peak_usage import PeakUsage
    from ptjob_provider.core.identity import JobRef

MEBIBYTE = 2**20

WRITES = """
import os
with open("/state/big", "wb") as file:
    file.write(os.urandom(2**20))
    file.flush()
    os.fsync(file.fileno())
"""

WORKS = """
import os, time
while not os.path.exists("/state/go"):
    sum(range(1000))
"""

HOLDS = "b = bytearray(200 * 2**20)\n"

MASTER, WORKER = "uses-master-0", "uses-worker-0"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Return the local back-end without jobs."""
    config = LocalConfig(root=tmp_path / "root", environment=environment())
    made = World(backend=LocalBackend(config), image="i", claim=lambda name: config.claims_of("default") / name)
    yield made
    await made.clear()


def counted(folder: Path) -> int:
    """Return how many bytes of a mebibyte written to a file are counted on the disk of these tests."""
    before = written()
    with (folder / "big").open("wb") as file:
        file.write(os.urandom(MEBIBYTE))
        file.flush()
        os.fsync(file.fileno())
    return min(written() - before, MEBIBYTE)


def written() -> int:
    """Return the bytes that this process has written, according to the kernel."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))


async def measured(world: World, ref: JobRef, replica: str, has_shown: Callable[[PeakUsage], bool]) -> PeakUsage:
    """Return a replica's usage once it meets the condition."""
    async with asyncio.timeout(world.patience):
        while True:
            told = dict(await world.backend.usage(ref))
            if replica in told and has_shown(told[replica]):
                return told[replica]
            await asyncio.sleep(0.05)


async def test_the_peaks_of_each_replica_are_in_the_result(world: World, tmp_path: Path) -> None:
    """Processor and memory of all its processes, and the bytes that they wrote.

    A later reader sees the same values, although nothing of the job runs any more.
    """
    ref = await world.submit(world.job("uses", WRITES + WORKS, HOLDS + held(), **STATE))
    submission = Submission.of(await world.backend.get(ref.kind, ref.namespace, ref.name))
    following = asyncio.create_task(follow(world.backend, submission, sink=ListSink()))
    least = counted(tmp_path)
    await measured(world, ref, MASTER, lambda use: (use.peak_cpu or 0) > 0.1 and (use.disk or 0) >= least)
    await measured(world, ref, WORKER, lambda use: (use.peak_memory or 0) > 200 * MEBIBYTE)
    told = await measured(world, ref, MASTER, lambda use: use.samples >= 3)

    world.release()
    conclusion = await following
    later = (await look(world.backend, ref.namespace, ref.name)).to_dict()

    assert conclusion.outcome is Outcome.SUCCEEDED
    assert conclusion.result is not None
    assert conclusion.result == json.loads(json.dumps(conclusion.result))
    replicas = conclusion.result["usage"]["replicas"]
    assert list(replicas) == [MASTER, WORKER]
    assert 0.1 < replicas[MASTER]["peak_cpu"] < 2
    assert replicas[MASTER]["peak_memory"] >= (told.peak_memory or 0) > MEBIBYTE
    assert replicas[MASTER]["disk"] >= least
    assert replicas[MASTER]["peak_memory"] < 200 * MEBIBYTE < replicas[WORKER]["peak_memory"]
    assert later["usage"] == conclusion.result["usage"]
