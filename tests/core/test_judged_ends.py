"""Tests of ends that we judge, against a stand-in API server whose watches are refused, dead or late.

The follower and the informer are the real ones. The loop's clock jumps, and the wall clock goes with it.
"""

from __future__ import annotations

import asyncio
import copy
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from following import NOON, Following
from ptjob_provider.core import history
from ptjob_provider.core.diagnosis import Cause
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable
from ptjob_provider.core.identity import RECORD_ANNOTATION, annotation_of
from ptjob_provider.core.kubernetes import ClusterConfig, KubernetesBackend
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from stand_in_watches import StandInCluster, job, pod, ref_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ptjob_provider.core.identity import Manifest

pytestmark = pytest.mark.skips_waits

MINUTE = 60.0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> StandInCluster:
    """Return a cluster with a job whose pod cannot pull its image."""
    stand_in = StandInCluster()
    stand_in.serve(monkeypatch)
    monkeypatch.setattr("ptjob_provider.core.kubernetes.informer.reflector._PAUSES", (0.2, 30.0))  # the real ones
    stand_in.bookmarks = MINUTE
    stand_in.put("pytorchjobs", job("digits", "Created"))
    stand_in.put("pods", without_image())
    return stand_in


def without_image() -> Manifest:
    """Return a pod whose image cannot be pulled."""
    found = copy.deepcopy(pod("digits"))
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    found["status"] = {
        "phase": "Pending",
        "containerStatuses": [{"name": "pytorch", "restartCount": 0, "state": waiting}],
    }
    return found


@asynccontextmanager
async def followed(**options: Any) -> AsyncIterator[Following]:
    """Follow the job inside the block, from its first observation on."""
    following = Following(**options)
    await asyncio.sleep(10)
    try:
        yield following
    finally:
        following.task.cancel()
        await asyncio.gather(following.task, return_exceptions=True)


async def trains(server: StandInCluster, minutes: float) -> None:
    """Start the pod, and let it train."""
    server.put("pods", pod("digits"))
    server.put("pytorchjobs", job("digits", "Created", "Running"))
    await asyncio.sleep(minutes * MINUTE)


def recovers(server: StandInCluster) -> None:
    server.refused.clear()
    server.dead.clear()
    server.cut()


def succeeds(server: StandInCluster) -> None:
    server.put("pods", pod("digits", "Succeeded"))
    server.put("pytorchjobs", job("digits", "Created", "Running", "Succeeded"))


async def test_a_training_that_started_just_before_its_limit_is_kept(server: StandInCluster) -> None:
    """The view was current a moment ago, so the limit passes; the server knows better."""
    async with followed() as following:
        await asyncio.sleep(1150)
        server.dead.add("pods")
        server.put("pods", pod("digits"))
        await asyncio.sleep(30)
        server.dead.clear()  # requests are answered again; the watch is silent until it is opened anew
        await asyncio.sleep(600)
        assert server.deleted == []
        assert any("goes on" in text for text in following.sink.notices)

        succeeds(server)
        server.cut()
        assert (await following.outcome()).outcome is Outcome.SUCCEEDED


async def test_an_elastic_training_is_kept_though_one_of_its_replicas_does_not_start(server: StandInCluster) -> None:
    elastic = job("digits", "Created", "Running")
    elastic["spec"]["elasticPolicy"] = {"minReplicas": 1}
    server.put("pytorchjobs", elastic)
    running = copy.deepcopy(pod("digits"))
    running["metadata"] |= {"name": "digits-worker-0", "uid": "uid-of-worker-0"}
    server.put("pods", running)
    async with followed() as following:
        await asyncio.sleep(40 * MINUTE)
        assert (server.deleted, following.task.done()) == ([], False)

        server.put("pods", {**running, "status": without_image()["status"]})  # it starts again
        await asyncio.sleep(15 * MINUTE)
        server.put("pods", running)
        await asyncio.sleep(MINUTE)
        assert (server.deleted, following.task.done()) == ([], False)

        server.put("pods", {**running, "status": without_image()["status"]})
        await asyncio.sleep(21 * MINUTE)
        assert server.deleted == ["digits"]


async def test_time_in_which_the_server_was_away_is_no_time_of_waiting(server: StandInCluster) -> None:
    async with followed() as following:
        await asyncio.sleep(5 * MINUTE)
        server.dead |= {"pods", "pytorchjobs"}
        await asyncio.sleep(60 * MINUTE)
        recovers(server)
        await asyncio.sleep(10 * MINUTE)
        assert not following.task.done()

        outcome = await following.outcome()
        assert (outcome.outcome, server.deleted) == (Outcome.FAILED, ["digits"])
        assert outcome.diagnosis is not None
        assert outcome.diagnosis.cause is Cause.IMAGE
        assert timedelta(minutes=80) < following.now() - NOON < timedelta(minutes=85)


async def test_limits_wait_until_both_watches_are_current(server: StandInCluster) -> None:
    """The watch of pods is silent from the fifth minute on, and the operator writes the job's status all the time."""
    async with followed() as following:
        await asyncio.sleep(5 * MINUTE)
        server.dead_watches.add("pods")
        for _ in range(40):
            server.put("pytorchjobs", job("digits", "Created"))
            await asyncio.sleep(MINUTE)
        assert (server.deleted, following.task.done()) == ([], False)


async def test_a_clock_that_was_set_ends_no_wait(server: StandInCluster) -> None:
    async with followed() as following:
        following.step = timedelta(hours=5)
        await asyncio.sleep(15 * MINUTE)
        following.step = -timedelta(hours=5)
        await asyncio.sleep(4 * MINUTE)
        assert server.deleted == []
        assert (await following.outcome()).outcome is Outcome.FAILED
        assert following.now() - NOON < timedelta(hours=-4.5)


@pytest.mark.parametrize("step", [timedelta(days=2), -timedelta(days=2)])
async def test_a_clock_that_was_set_moves_no_deadline(server: StandInCluster, step: timedelta) -> None:
    async with followed(deadline=NOON + timedelta(minutes=30)) as following:
        following.step = step
        await trains(server, minutes=29)
        assert (server.deleted, following.task.done()) == ([], False)

        assert (await following.outcome()).outcome is Outcome.TIMED_OUT
        assert timedelta(minutes=29) < following.now() - step - NOON < timedelta(minutes=31)
    assert server.deleted == ["digits"]


async def test_a_deadline_passes_while_the_machine_is_suspended(
    server: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower notices it at its next look at the clock."""
    async with followed(deadline=NOON + timedelta(hours=1)) as following:
        await trains(server, minutes=1)
        clock = time.clock_gettime
        monkeypatch.setattr(time, "clock_gettime", lambda which: clock(which) + 3600)

        assert (await following.outcome()).outcome is Outcome.TIMED_OUT
        assert following.now() - NOON < timedelta(minutes=15)


async def test_a_server_that_is_silent_at_the_deadline_leaves_the_attempt_open(server: StandInCluster) -> None:
    async with followed(deadline=NOON + timedelta(minutes=30)) as following:
        await trains(server, minutes=20)
        server.dead |= {"pods", "pytorchjobs"}
        await asyncio.sleep(10 * MINUTE + 40)
        assert not following.task.done()
        await asyncio.sleep(30)
        assert following.task.done()
        outcome = await following.outcome()

        assert (outcome.outcome, outcome.is_open) == (Outcome.TIMED_OUT, True)
        assert outcome.diagnosis is not None
        assert "may go on" in outcome.diagnosis.in_one_line(ref_of(job("digits")))
        assert JobOutcome.from_dict(outcome.to_dict()) == outcome
    assert server.deleted == []


async def test_a_deletion_is_judged_again_when_the_job_has_changed(server: StandInCluster) -> None:
    """After three changes that do not matter, any version is deleted: operators write a status all the time."""
    server.conflicts = 99
    async with followed() as following:
        assert (await following.outcome()).outcome is Outcome.FAILED
    assert ["resourceVersion" in each for each in server.preconditions] == [True, True, True, False]
    assert server.deleted == ["digits"]


async def test_a_deletion_that_is_refused_is_no_success(server: StandInCluster) -> None:
    server.refused["delete", "pytorchjobs"] = ClusterError("Conflict", code=409, reason="Conflict")
    async with followed(api_error_timeout=600.0) as following:
        with pytest.raises(ClusterUnavailable, match="was left as it is"):
            await following.outcome()
    assert server.deleted == []


async def test_the_next_follower_counts_on_from_the_time_that_was_counted(server: StandInCluster) -> None:
    async with followed() as first:
        await asyncio.sleep(5 * MINUTE)
        waited = copy.deepcopy(without_image())
        waited["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] = "ErrImagePull"
        server.put("pods", waited)  # a new reason is worth a note on the job
        await asyncio.sleep(10 * MINUTE)
    stored = await KubernetesBackend(ClusterConfig()).get("PyTorchJob", "team", "digits")
    record = history.from_text(annotation_of(stored, RECORD_ANNOTATION))
    assert record.counted_at is not None
    counted = record.counted_at - record.waiting[0].since

    await asyncio.sleep(60 * MINUTE)  # nobody follows
    began = first.now()
    async with followed(began=first.began) as following:
        assert (await following.outcome()).outcome is Outcome.FAILED
        took = following.now() - began
    assert abs(took - (timedelta(seconds=1200) - counted)) < timedelta(seconds=10)
