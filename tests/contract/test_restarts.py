"""Tests of restart policies, limits and suspension, which only an operator has, and of time to live."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.errors import JobNotFound
from worlds import ON_CLUSTER, STATE, condition, has_ended, has_ended_with, held, is_running, terminations, types

if TYPE_CHECKING:
    from ptjob_provider.core.backend import Observation
    from worlds import World

SLEEP = "import time; time.sleep(600)"
FAIL_TWICE = held("""
    import sys
    count = pathlib.Path("/state/count")
    runs = int(count.read_text()) if count.exists() else 0
    count.write_text(str(runs + 1))
    print("run", runs)
    sys.exit({code} if runs < 2 else 0)
""")


@ON_CLUSTER
async def test_on_failure_restarts_in_place_until_it_succeeds(world: World) -> None:
    """The pod stays, its restarts are counted, the job keeps running, and every end is observed."""
    manifest = world.job("retry", FAIL_TWICE.format(code=1), policy="OnFailure", **STATE)

    ref, seen = await world.run(manifest, is_held=True, until=has_ended_with("retry-master-0"))

    assert condition(seen[-1].job, "Succeeded")
    assert [end["exitCode"] for end in terminations(seen, "retry-master-0")] == [1, 1, 0]
    assert len({pod["metadata"]["uid"] for one in seen for pod in one.pods}) == 1
    assert seen[-1].pods[0]["status"]["containerStatuses"][0]["restartCount"] == 2
    assert await world.text(ref, "retry-master-0") == [f"run {run}" for run in range(world.first_kept_run, 3)]


@ON_CLUSTER
async def test_a_crash_loop_waits_longer_each_time_and_says_so(world: World) -> None:
    """The job itself stays Running; the pod has the reason why nothing runs."""
    ref = await world.submit(world.job("loop", "raise SystemExit(4)", policy="OnFailure"))

    seen = await world.observe(ref, lambda one: _waiting(one) == "CrashLoopBackOff" and _restarts(one) >= 2)

    assert condition(seen[-1].job, "Running")
    assert "restarting failed container=pytorch pod=loop-master-0" in _state(seen[-1])["waiting"]["message"]
    assert seen[-1].pods[0]["status"]["phase"] == "Running"


@ON_CLUSTER
async def test_the_backoff_limit_ends_a_crash_loop(world: World) -> None:
    """After this many restarts it is Failed, with the operator's message."""
    program = held("raise SystemExit(4)")
    manifest = world.job("limit", program, policy="OnFailure", backoffLimit=2, cleanPodPolicy="Running", **STATE)

    ref, seen = await world.run(manifest, is_held=True)

    failed = condition(seen[-1].job, "Failed")
    assert failed["message"] == "Job limit has failed because it has reached the specified backoff limit"
    assert len(terminations(seen, "limit-master-0")) >= 2
    await world.gone(ref)


@ON_CLUSTER
async def test_a_backoff_limit_of_zero_allows_no_restart(world: World) -> None:
    """Arena always sets it."""
    _, seen = await world.run(
        world.job("zero", "raise SystemExit(4)", policy="OnFailure", backoffLimit=0, cleanPodPolicy="All")
    )

    assert "backoff limit" in condition(seen[-1].job, "Failed")["message"]


@ON_CLUSTER
async def test_exit_code_makes_a_new_pod_after_a_signal(world: World) -> None:
    """A code of 128 or more is retried in a new pod of the same name; meanwhile, the job is Restarting."""
    manifest = world.job("fresh", FAIL_TWICE.format(code=138), policy="ExitCode", **STATE)

    ref, seen = await world.run(manifest, is_held=True, until=has_ended_with("fresh-master-0"))

    assert condition(seen[-1].job, "Succeeded")
    assert [end["exitCode"] for end in terminations(seen, "fresh-master-0")] == [138, 138, 0]
    assert len({pod["metadata"]["uid"] for one in seen for pod in one.pods}) == 3
    assert any(condition(one.job, "Restarting") for one in seen)
    assert await world.text(ref, "fresh-master-0") == [f"run {run}" for run in range(world.first_kept_run, 3)]


@ON_CLUSTER
async def test_exit_code_gives_up_after_a_program_error(world: World) -> None:
    """A code below 128 is permanent."""
    _, seen = await world.run(world.job("permanent", "raise SystemExit(5)", policy="ExitCode"))

    assert (
        condition(seen[-1].job, "Failed")["message"] == 'job "permanent" is failing because "Master" replica(s) failed.'
    )


@ON_CLUSTER
async def test_always_restarts_after_success_too(world: World) -> None:
    """Such a job never succeeds."""
    ref = await world.submit(world.job("always", "print('round')", policy="Always"))

    seen = await world.observe(ref, lambda one: _restarts(one) >= 2)

    assert not condition(seen[-1].job, "Succeeded")
    assert {end["exitCode"] for end in terminations(seen, "always-master-0")} == {0}


@ON_CLUSTER
async def test_a_suspended_job_starts_nothing_until_it_is_resumed(world: World) -> None:
    """A suspended job has no pods; resuming starts the clock and the pods."""
    ref = await world.submit(world.job("later", held("print('now')"), suspend=True, **STATE))
    asleep = await world.observe(ref, lambda one: condition(one.job, "Suspended") is not None)
    await asyncio.sleep(0.5)
    still = await world.backend.get("PyTorchJob", world.namespace, "later")

    await world.backend.patch(ref, {"spec": {"runPolicy": {"suspend": False}}})
    await world.observe(ref, lambda one: condition(one.job, "Running") is not None)
    world.release()
    seen = await world.observe(ref, has_ended)

    assert asleep[-1].pods == []
    assert types(still) == [("Created", "True"), ("Suspended", "True")]
    assert types(seen[-1].job) == [
        ("Created", "True"),
        ("Suspended", "False"),
        ("Running", "False"),
        ("Succeeded", "True"),
    ]
    assert await world.text(ref, "later-master-0") == ["now"]


@ON_CLUSTER
async def test_suspending_a_running_job_removes_its_pods(world: World) -> None:
    """Resuming creates new ones."""
    ref = await world.submit(world.job("pause", SLEEP))
    before = await world.observe(ref, is_running)

    await world.backend.patch(ref, {"spec": {"runPolicy": {"suspend": True}}})
    asleep = await world.observe(ref, lambda one: one.pods == [] and condition(one.job, "Suspended") is not None)
    await world.backend.patch(ref, {"spec": {"runPolicy": {"suspend": False}}})
    after = await world.observe(ref, is_running)

    assert not condition(asleep[-1].job, "Running")
    assert before[-1].pods[0]["metadata"]["uid"] != after[-1].pods[0]["metadata"]["uid"]


async def test_a_job_is_gone_after_its_time_to_live(world: World) -> None:
    """The time is counted from the job's end."""
    ref, _ = await world.run(world.job("mayfly", "pass", ttlSecondsAfterFinished=5))
    await world.backend.get("PyTorchJob", world.namespace, "mayfly")

    seen = await world.observe(ref, lambda one: one.job is None)

    assert seen[-1].job is None
    with pytest.raises(JobNotFound):
        await world.backend.get("PyTorchJob", world.namespace, "mayfly")


def _state(observation: Observation) -> dict[str, dict[str, str]]:
    for pod in observation.pods:
        for container in pod["status"].get("containerStatuses", ()):
            return container["state"]
    return {}


def _waiting(observation: Observation) -> str:
    return _state(observation).get("waiting", {}).get("reason", "")


def _restarts(observation: Observation) -> int:
    return max(
        (c["restartCount"] for p in observation.pods for c in p["status"].get("containerStatuses", ())), default=0
    )
