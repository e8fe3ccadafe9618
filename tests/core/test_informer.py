"""Tests of an informer whose API server refuses requests, was restored from a backup, or lags behind."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.errors import ClusterError, PermissionDenied, PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes import ClusterConfig, KubernetesBackend
from ptjob_provider.core.kubernetes.informer import WatchScope, subscribe
from ptjob_provider.core.kubernetes.informer.informer import JobInformer
from ptjob_provider.core.shared import opened
from ptjob_provider.core.status import JobPhase
from stand_in_watches import FORBIDDEN, StandInCluster, job, pod, ref_of, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ptjob_provider.core.backend import Observation

pytestmark = pytest.mark.skips_waits


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> StandInCluster:
    """Return a cluster with a running job."""
    stand_in = StandInCluster()
    stand_in.serve(monkeypatch)
    stand_in.put("pytorchjobs", job("digits", "Running"))
    stand_in.put("pods", pod("digits"))
    return stand_in


@pytest.fixture
def backend() -> KubernetesBackend:
    """Return a back-end for this cluster."""
    return KubernetesBackend(ClusterConfig())


def phase(seen: Observation) -> JobPhase | None:
    return PYTORCHJOB.read_status(seen.job).phase if seen.job else None


async def again(backend: KubernetesBackend, ref: JobRef) -> AsyncGenerator[Observation, None]:
    """Watch, and watch again after each refusal."""
    while True:
        with suppress(PTJobError):
            async with aclosing(backend.watch(ref)) as watch:
                async for seen in watch:
                    yield seen
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("plural", ["pytorchjobs", "pods"])
async def test_a_refused_watch_is_opened_again_for_everybody_who_asks_again(
    server: StandInCluster, backend: KubernetesBackend, plural: str
) -> None:
    """All followers of the jobs get the server's message, and see the end of their job once it responds."""
    server.put("pytorchjobs", job("other", "Running"))
    refs = [ref_of(job("digits")), ref_of(job("other"))]
    async with aclosing(backend.watch(refs[0])) as one, aclosing(backend.watch(refs[1])) as two:
        await until(one, lambda seen: phase(seen) is JobPhase.RUNNING)
        await until(two, lambda seen: phase(seen) is JobPhase.RUNNING)
        server.refused["watch", plural] = ClusterError("not now", code=403)
        server.cut()
        for watch in (one, two):
            with pytest.raises(ClusterError, match="not now"):
                await until(watch, lambda _: False)
        with pytest.raises(ClusterError, match="not now"):
            await anext(backend.watch(refs[0]))
        del server.refused["watch", plural]
        for ref in refs:
            server.put("pytorchjobs", job(ref.name, "Running", "Succeeded"))

        for ref in refs:
            async with aclosing(again(backend, ref)) as watch:
                await until(watch, lambda seen: phase(seen) is JobPhase.SUCCEEDED)


async def test_a_pod_that_went_while_the_watch_was_refused_is_delivered_with_its_last_state(
    server: StandInCluster, backend: KubernetesBackend
) -> None:
    """The follower had stopped watching after the refusal."""
    ref = ref_of(job("digits"))
    async with aclosing(backend.watch(ref)) as watch:
        await until(watch, lambda seen: bool(seen.pods))
        server.refused["watch", "pods"] = FORBIDDEN
        server.cut()
        with pytest.raises(PermissionDenied):
            await until(watch, lambda _: False)
    server.put("pods", pod("digits", "Failed", code=7))
    server.remove("pods", "digits-master-0")
    del server.refused["watch", "pods"]

    async with aclosing(again(backend, ref)) as watch:
        seen = await until(watch, lambda seen: any(each["status"]["phase"] == "Failed" for each in seen.pods))

    ended = seen.pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 7


async def test_a_log_reader_goes_on_while_the_watch_is_refused(server: StandInCluster) -> None:
    """The log stream is a separate request, which may succeed."""
    async with subscribe(ClusterConfig(), ref_of(job("digits"))) as cache:
        server.refused["watch", "pods"] = FORBIDDEN
        server.cut()
        with pytest.raises(PermissionDenied):
            await asyncio.wait_for(cache.notifier.until(lambda: False), 30)

        await cache.change(0.01)

        assert await cache.pod("digits-master-0")
        assert await cache.job()


async def test_a_follower_who_gave_up_leaves_nothing_behind(
    server: StandInCluster, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects that are unpacked for returning followers are packed again some time after the server responds."""
    monkeypatch.setattr("ptjob_provider.core.kubernetes.informer.informer._KEPT", 0.05)
    server.put("pytorchjobs", job("other", "Running"))
    server.put("pytorchjobs", job("third", "Running"))
    left, stays, third = (ref_of(job(name)) for name in ("digits", "other", "third"))
    async with (
        subscribe(ClusterConfig(), third),  # so that the other two share an informer
        aclosing(backend.watch(left)) as one,
        subscribe(ClusterConfig(), stays) as kept,
    ):
        await until(one, lambda seen: phase(seen) is JobPhase.RUNNING)
        server.refused["watch", "pytorchjobs"] = FORBIDDEN
        server.cut()
        with pytest.raises(PermissionDenied):
            await until(one, lambda _: False)
        del server.refused["watch", "pytorchjobs"]
        informer = opened(WatchScope(config=ClusterConfig(), kind="PyTorchJob", namespace="team"))
        assert isinstance(informer, JobInformer)

        async with asyncio.timeout(30):
            while kept.notifier.refused is not None or informer._caches[left.uid].pods:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)

        assert informer._caches[left.uid].pod_uids == ["pod-digits"]


async def test_a_job_that_may_not_be_read_is_shown_to_whoever_asks_again(
    server: StandInCluster, backend: KubernetesBackend
) -> None:
    """An ended job is not cached, so it is read by name."""
    server.put("pytorchjobs", job("other", "Running"))
    server.put("pytorchjobs", job("digits", "Succeeded"))
    async with subscribe(ClusterConfig(), ref_of(job("other"))), subscribe(ClusterConfig(), ref_of(job("third"))):
        server.refused["list", "pods"] = FORBIDDEN
        with pytest.raises(PermissionDenied):
            await anext(backend.watch(ref_of(job("digits"))))
        server.refused.clear()

        async with aclosing(backend.watch(ref_of(job("digits")))) as watch:
            await until(watch, lambda seen: phase(seen) is JobPhase.SUCCEEDED)


@pytest.mark.parametrize("beside", [False, True])
async def test_after_a_restore_of_etcd_the_jobs_are_delivered_anew(
    server: StandInCluster, backend: KubernetesBackend, *, beside: bool
) -> None:
    """Resource versions restart at lower numbers, but the restored state must not be treated as older."""
    ref = ref_of(job("digits"))
    if beside:
        server.put("pytorchjobs", job("other", "Running"))
    backup = server.backup()
    for _ in range(20):
        server.put("pytorchjobs", job("digits", "Running", "Restarting"))
        server.put("pods", pod("digits", "Failed", code=1))
    others = [ref_of(job("other"))] if beside else []
    async with aclosing(backend.watch(ref)) as watch:
        for other in others:
            async with aclosing(backend.watch(other)) as neighbour:
                await until(neighbour, lambda seen: phase(seen) is JobPhase.RUNNING)
        await until(watch, lambda seen: [each["status"]["phase"] for each in seen.pods] == ["Failed"])

        server.restore(backup)
        restored = await until(watch, lambda seen: [each["status"]["phase"] for each in seen.pods] == ["Running"])
        server.put("pytorchjobs", job("digits", "Running", "Succeeded"))
        await until(watch, lambda seen: phase(seen) is JobPhase.SUCCEEDED)

    assert restored.job is not None
    assert server.opened < 20


@pytest.mark.parametrize("writes", [0, 60])
async def test_a_server_that_is_mute_after_a_restore_is_found_out(
    server: StandInCluster, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """It accepts a watch from a version that it no longer has and sends nothing; a healthy server sends bookmarks.

    Others may write so much that the list's version is higher than before, while those of its objects are lower.
    """
    monkeypatch.setattr("ptjob_provider.core.kubernetes.informer.reflector._DOUBT", 0.0)
    backup = server.backup()
    for _ in range(20):
        server.put("pytorchjobs", job("digits", "Running", "Restarting"))
    async with aclosing(backend.watch(ref_of(job("digits")))) as watch:
        await until(watch, lambda seen: bool(seen.job) and seen.job["metadata"]["resourceVersion"] == "22")

        server.is_mute = True
        server.restore(backup)
        server.put("pytorchjobs", job("digits", "Running", "Succeeded"))
        for _ in range(writes):
            server.put("trainjobs", job("other", "Running"))
        await server.until_opened(server.opened + 2)
        server.cut()  # as after the timeout
        await until(watch, lambda seen: phase(seen) is JobPhase.SUCCEEDED)


async def test_a_job_that_the_backup_does_not_have_is_gone(server: StandInCluster, backend: KubernetesBackend) -> None:
    """Its follower ends."""
    backup = server.backup()
    server.put("pytorchjobs", job("later", "Running"))
    async with aclosing(backend.watch(ref_of(job("later")))) as watch:
        await until(watch, lambda seen: phase(seen) is JobPhase.RUNNING)

        server.restore(backup)

        await until(watch, lambda seen: seen.job is None)


async def test_a_job_that_is_deleted_as_its_follower_leaves_is_gone_for_the_next_one(
    server: StandInCluster, backend: KubernetesBackend
) -> None:
    """The deleted job is not cached as a running one, although no follower was left to verify the deletion."""
    server.put("pytorchjobs", job("other", "Running"))
    digits, config = ref_of(job("digits")), ClusterConfig()
    async with subscribe(config, ref_of(job("other"))), subscribe(config, ref_of(job("third"))):
        async with subscribe(config, digits) as cache:
            server.remove("pytorchjobs", "digits")
            while cache.version >= 0:  # noqa: ASYNC110 - no notification before the job is read
                await asyncio.sleep(0)

        async with aclosing(backend.watch(digits)) as watch:
            await until(watch, lambda seen: seen.job is None)


@pytest.mark.parametrize("end", ["Failed", "Succeeded"])
@pytest.mark.parametrize("beside", [False, True])
async def test_a_job_that_is_deleted_as_soon_as_it_has_ended_is_delivered_with_its_end(
    server: StandInCluster, backend: KubernetesBackend, end: str, *, beside: bool
) -> None:
    """As with ttlSecondsAfterFinished: 0. The end of a job that is reported as deleted would get no next attempt."""
    server.put("pytorchjobs", job("other", "Running"))
    async with (
        aclosing(backend.watch(ref_of(job("digits")))) as watch,
        aclosing(backend.watch(ref_of(job("other")))) as neighbour,
    ):
        if beside:
            await until(neighbour, lambda seen: phase(seen) is JobPhase.RUNNING)
        await until(watch, lambda seen: phase(seen) is JobPhase.RUNNING)

        server.put("pytorchjobs", job("digits", "Running", end))
        server.remove("pytorchjobs", "digits")
        async with asyncio.timeout(30):
            seen = [phase(each) async for each in watch]

    assert seen == [JobPhase(end), None]


@pytest.mark.parametrize("beside", [False, True])
async def test_a_job_that_a_server_which_is_behind_does_not_have_is_not_gone(
    server: StandInCluster, backend: KubernetesBackend, *, beside: bool
) -> None:
    """It is read by name before it is reported as deleted."""
    backup = server.backup()
    server.put("pytorchjobs", job("later", "Running"))
    others = [ref_of(job("digits"))] if beside else []
    async with aclosing(backend.watch(ref_of(job("later")))) as watch:
        for other in others:
            async with aclosing(backend.watch(other)) as neighbour:
                await until(neighbour, lambda seen: phase(seen) is JobPhase.RUNNING)
        await until(watch, lambda seen: phase(seen) is JobPhase.RUNNING)

        ending = asyncio.create_task(until(watch, lambda seen: phase(seen) is JobPhase.SUCCEEDED))
        opened = server.opened
        server.fall_behind(backup)
        await server.until_opened(opened + 4)
        server.put("pytorchjobs", job("later", "Running", "Succeeded"))
        server.catch_up()

        assert (await ending).job is not None


async def test_a_pod_that_a_server_which_is_behind_did_not_have_comes_back(
    server: StandInCluster, backend: KubernetesBackend
) -> None:
    """It was taken for deleted, and its end is observed."""
    server.remove("pods", "digits-master-0")
    backup = server.backup()
    later = {**pod("digits"), "metadata": {**pod("digits")["metadata"], "uid": "later"}}
    server.put("pods", later)
    async with aclosing(backend.watch(ref_of(job("digits")))) as watch:
        await until(watch, lambda seen: len(seen.pods) == 1)

        server.fall_behind(backup)
        await until(watch, lambda seen: not seen.pods)
        server.catch_up()

        await until(watch, lambda seen: len(seen.pods) == 1)
        server.put("pods", {**later, "status": pod("digits", "Failed", code=1)["status"]})
        await until(watch, lambda seen: [each["status"]["phase"] for each in seen.pods] == ["Failed"])


async def test_pods_of_other_jobsets_that_went_unseen_are_not_kept(server: StandInCluster) -> None:
    """The pods of TrainJobs have no label of ours, so that those of each JobSet of the namespace are delivered."""
    one, two = (JobRef(kind="TrainJob", namespace="team", name=name, uid=f"uid-{name}") for name in ("one", "two"))
    foreign = pod("foreign")
    foreign["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": "foreign"}
    server.put("pods", foreign)
    async with subscribe(ClusterConfig(), one), subscribe(ClusterConfig(), two):  # two share an informer
        informer = opened(WatchScope(config=ClusterConfig(), kind="TrainJob", namespace="team"))
        assert isinstance(informer, JobInformer)
        before = informer._owners.early_uids
        server.refused["watch", "pods"] = ClusterError("too old resource version", code=410)
        server.cut()
        server.remove("pods", foreign["metadata"]["name"])
        await server.until_opened(server.opened + 4)
        del server.refused["watch", "pods"]
        await server.until_opened(server.opened + 1)

        assert (before, informer._owners.early_uids) == ({foreign["metadata"]["uid"]}, set())


async def test_an_object_that_cannot_be_read_fails_only_the_followers_of_its_job(
    server: StandInCluster, backend: KubernetesBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """No server sends such labels today; the log has the traceback."""
    odd = {**job("odd", "Running")}
    server.put("pytorchjobs", odd)
    async with aclosing(backend.watch(ref_of(job("digits")))) as one, aclosing(backend.watch(ref_of(odd))) as two:
        await until(one, lambda seen: phase(seen) is JobPhase.RUNNING)
        await until(two, lambda seen: phase(seen) is JobPhase.RUNNING)

        server.put("pytorchjobs", {**odd, "metadata": {**odd["metadata"], "labels": ["odd"]}})
        with pytest.raises(ClusterError, match="an object of the job cannot be read: AttributeError"):
            await until(two, lambda _: False)
        server.put("pytorchjobs", job("digits", "Succeeded"))

        await until(one, lambda seen: phase(seen) is JobPhase.SUCCEEDED)
    assert "Traceback" in caplog.text
