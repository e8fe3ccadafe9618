"""What a job's processes use on this machine, seen while it runs and after its end."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING

from fakes import ListSink
from local_world import environment
from ptjob_provider.core.conclusion import Outcome
from ptjob_provider.core.local import LocalBackend, LocalConfig
from ptjob_provider.core.runner import follow
from ptjob_provider.core.snapshot import look
from ptjob_provider.core.submission import Submission
from worlds import STATE, World, has_ended, held, is_running

if TYPE_CHECKING:
    from pathlib import Path

    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.measured import Use

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

MASTER, WORKER = "uses-master-0", "uses-worker-0"


async def measured(world: World, ref: JobRef, *, samples: int) -> dict[str, Use]:
    """Return what is told once rank 0 was looked at so often."""
    async with asyncio.timeout(world.patience):
        while True:
            told = dict(await world.backend.usage(ref))
            if MASTER in told and told[MASTER].samples >= samples:
                return told
            await asyncio.sleep(0.05)


async def test_the_peaks_of_each_replica_are_in_the_result(tmp_path: Path) -> None:
    """Processor and memory of all its processes, and what they wrote; nobody measures a network here.

    Whoever looks later reads the same, though nothing of the job runs any more.
    """
    config = LocalConfig(root=tmp_path / "root", environment=environment())
    world = World(backend=LocalBackend(config), image="i", claim=lambda name: config.claims_of("default") / name)
    ref = await world.submit(world.job("uses", WRITES + WORKS, held(), **STATE))
    submission = Submission.of(await world.backend.get(ref.kind, ref.namespace, ref.name))
    following = asyncio.create_task(follow(world.backend, submission, sink=ListSink()))
    told = await measured(world, ref, samples=3)

    world.release()
    conclusion = await following
    later = (await look(world.backend, ref.namespace, ref.name)).to_dict()
    await world.clear()

    assert conclusion.outcome is Outcome.SUCCEEDED
    assert conclusion.result is not None
    assert conclusion.result == json.loads(json.dumps(conclusion.result))
    replicas = conclusion.result["usage"]["replicas"]
    assert list(replicas) == [MASTER, WORKER]
    assert replicas[MASTER]["peak_cpu"] > 0.1
    assert replicas[MASTER]["peak_memory"] >= (told[MASTER].peak_memory or 0) > MEBIBYTE
    assert replicas[MASTER]["disk"] is not None
    assert (replicas[MASTER]["received"], replicas[MASTER]["sent"]) == (None, None)
    assert replicas[WORKER]["peak_cpu"] < replicas[MASTER]["peak_cpu"]
    assert later["usage"] == conclusion.result["usage"]


async def test_a_job_that_nobody_follows_is_measured_as_well(tmp_path: Path) -> None:
    """Its supervisor looks, not whoever waits."""
    config = LocalConfig(root=tmp_path / "root", environment=environment())
    world = World(backend=LocalBackend(config), image="i", claim=lambda name: config.claims_of("default") / name)
    ref = await world.submit(world.job("uses", "b = bytearray(200 * 2**20)\n" + WORKS, **STATE))

    await measured(world, ref, samples=3)
    world.release()
    async with asyncio.timeout(world.patience), aclosing(world.backend.watch(ref)) as watch:
        async for seen in watch:
            if has_ended(seen):
                break
    told = await world.backend.usage(ref)
    await world.clear()

    assert not is_running(seen, replicas=1)
    assert (told[MASTER].peak_memory or 0) > 200 * MEBIBYTE
