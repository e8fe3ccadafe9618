"""Tests of whose outputs a job succeeds with, on a claim that other jobs have written to before."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from event_files import event, events_file, scalar
from fakes import ListSink
from ptjob_provider.core.diagnosis import Cause
from ptjob_provider.core.identity import OUTPUTS_ANNOTATION
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.submit import Submission
from worlds import STATE, World, has_ended

if TYPE_CHECKING:
    from pathlib import Path

    from ptjob_provider.core.identity import JobRef

WRITES = "import pathlib; pathlib.Path('/state/model.pt').write_text('mine')"
DECLARED = {
    name: {"uri": f"pvc://state/{path}", "claim": "state", "path": path, "container_path": f"/state/{path}"}
    for name, path in (("model", "model.pt"), ("tfevents", "tb"))
}


async def submitted(world: World, name: str, program: str, *outputs: str) -> JobRef:
    manifest = world.job(name, program, **STATE)
    declared = {each: DECLARED[each] for each in outputs}
    manifest["metadata"]["annotations"] = {OUTPUTS_ANNOTATION: json.dumps(declared)}
    return await world.submit(manifest)


async def concluded(world: World, ref: JobRef, *, first: JobRef | None = None) -> tuple[JobOutcome, ListSink]:
    """Follow a job to its end; `first` is the first attempt of the same task."""
    job = await world.backend.get(ref.kind, ref.namespace, ref.name)
    begun = await world.backend.get(first.kind, first.namespace, first.name) if first else job
    sink = ListSink()
    async with asyncio.timeout(world.patience):
        since = begun["metadata"]["creationTimestamp"]
        return await follow(world.backend, Submission.of(job, since=since), sink=sink), sink


async def filled(world: World) -> Path:
    """Return the folder of the claim, which a finished job has made."""
    ref = await world.submit(world.job("before", "print('up')", **STATE))
    await world.observe(ref, has_ended)
    return world.claim("state")


def result_of(outcome: JobOutcome) -> dict[str, Any]:
    assert outcome.outcome is Outcome.SUCCEEDED, outcome.diagnosis
    assert outcome.result is not None
    return dict(outcome.result)


async def test_the_model_that_another_job_left_a_moment_before_is_not_this_jobs(world: World) -> None:
    """Whatever the job's end says, it has trained nothing that a gate may promote."""
    folder = await filled(world)
    (folder / "model.pt").write_text("another job's")
    await asyncio.sleep(1.1)  # a cluster keeps creation times in whole seconds

    outcome, _ = await concluded(world, await submitted(world, "idle", "print('nothing')", "model"))

    assert outcome.outcome is Outcome.FAILED
    assert outcome.diagnosis is not None
    assert outcome.diagnosis.cause is Cause.OUTPUTS
    assert "is stale" in outcome.diagnosis.summary


async def test_a_model_that_was_written_over_is_this_jobs(world: World) -> None:
    folder = await filled(world)
    (folder / "model.pt").write_text("another job's")

    outcome, _ = await concluded(world, await submitted(world, "writes", WRITES, "model"))

    model = result_of(outcome)["model"]
    assert (model["bytes"], model["in_doubt"]) == (4, False)


async def test_the_model_of_an_earlier_attempt_is_this_tasks(world: World) -> None:
    await filled(world)
    first = await submitted(world, "first", f"{WRITES}; raise SystemExit(1)", "model")
    await world.observe(first, has_ended)

    outcome, _ = await concluded(world, await submitted(world, "second", "print('ok')", "model"), first=first)

    assert result_of(outcome)["model"]["bytes"] == 4


async def test_curves_that_another_job_left_are_not_this_jobs(world: World) -> None:
    """It had more steps, and a tag that is no longer written."""
    folder, now = await filled(world), time.time()
    (folder / "tb").mkdir()
    left = events_file(event(900, scalar("loss", 0.25), scalar("gone", 1.0), wall_time=now))
    (folder / "tb" / "events.out.tfevents.1.a").write_bytes(left)
    await asyncio.sleep(1.1)  # a cluster keeps creation times in whole seconds
    new = events_file(event(10, scalar("loss", 0.5), wall_time=now + 600)).hex()
    program = f"import pathlib; pathlib.Path('/state/tb/events.out.tfevents.2.b').write_bytes(bytes.fromhex('{new}'))"

    outcome, _ = await concluded(world, await submitted(world, "curves", program, "tfevents"))

    found = result_of(outcome)["tfevents"]
    assert (found["scalars"], found["last_step"]) == ({"loss": 0.5}, 10)
