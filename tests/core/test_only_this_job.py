"""Test that requests to the API server identify the one job by its uid; a scripted stand-in replaces the server.

Jobs of one name follow each other, and a client may have been away in between.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from api_server_stand_in import stand_in_api_server
from ptjob_provider.core.errors import ClusterError, JobNotFound, OutputsNotVerified, PermissionDenied
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import ClusterConfig, KubernetesBackend, OwnPod
from ptjob_provider.core.kubernetes.informer import WatchScope
from ptjob_provider.core.kubernetes.informer.cache import JobCache
from ptjob_provider.core.kubernetes.informer.informer import JobInformer
from ptjob_provider.core.kubernetes.inspector import ClusterInspector
from ptjob_provider.core.outputs.contract import ResolvedOutputs

pytestmark = pytest.mark.skips_waits

REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="u-1")
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "digits-code"}, "stringData": {"a": "b"}}
LATER = "2026-11-20T12:00:00Z"
TEMPLATE = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}


def status(code: int, reason: str, message: str = "so it is") -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}


CONFLICT = status(409, "Conflict", "the UID in the precondition (u-1) does not match the UID in record (u-2)")
INVALID = status(422, "Invalid", "metadata.uid: field is immutable")


def job(uid: str = "u-1") -> dict[str, Any]:
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": TEMPLATE}}}
    meta = {"namespace": "team", "name": "digits", "uid": uid, "annotations": {}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}


def pods(*owners: str) -> dict[str, Any]:
    """Return running pods with the job's labels, each with one owner."""
    labels = {"training.kubeflow.org/job-name": "digits"}
    found = [
        {
            "metadata": {
                "name": f"digits-worker-{number}",
                "uid": f"p-{number}",
                "labels": labels,
                "ownerReferences": [{"kind": "PyTorchJob", "name": "digits", "uid": uid, "controller": True}],
            },
            "status": {"phase": "Running"},
        }
        for number, uid in enumerate(owners)
    ]
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": found}


async def test_a_deletion_is_of_one_uid_and_another_jobs_name_ends_it() -> None:
    """A later job under its name stays, and there is no error: the intended job is gone."""
    async with stand_in_api_server(CONFLICT, (200, job("u-2"))) as server:
        await KubernetesBackend(server.config()).delete(REF)

    assert server.bodies[0].get("preconditions") == {"uid": "u-1"}
    assert [line.split()[0] for line in server.requests] == ["DELETE", "GET"]


@pytest.mark.parametrize(
    ("kind", "policy"), [("PyTorchJob", "Foreground"), ("TrainJob", "Background"), ("PyTorchTrainingJob", "Foreground")]
)
async def test_a_job_goes_with_all_that_it_owns(kind: str, policy: str) -> None:
    """Its pods are deleted first, where the operator tolerates that; no replica keeps its GPUs without an owner."""
    async with stand_in_api_server() as server:
        await KubernetesBackend(server.config()).delete(replace(REF, kind=kind))

    assert [body["propagationPolicy"] for body in server.bodies] == [policy]


@pytest.mark.parametrize("change", [{"metadata": {"annotations": {"a": "b"}}}, {"spec": {"runPolicy": {}}}])
async def test_a_change_is_of_one_uid(change: dict[str, Any]) -> None:
    """The server refuses it for another job, and the caller learns that the intended job is gone."""
    async with stand_in_api_server(INVALID, *[(200, job("u-2"))] * 3) as server:
        with pytest.raises(JobNotFound, match="team/digits: another job has the name now"):
            await KubernetesBackend(server.config()).patch(REF, change)

    assert server.bodies[0]["metadata"].get("uid") == "u-1"


class StandInClient:
    """Client that answers every request with one object and one list."""

    def __init__(self, found: dict[str, Any], listed: list[dict[str, Any]]) -> None:
        self._found = found
        self._listed = listed

    async def object(self, _path: str, **_how: Any) -> dict[str, Any]:
        return self._found

    async def items(self, _path: str, **_query: str) -> list[dict[str, Any]]:
        return self._listed


def board_of(kind: str, found: dict[str, Any], *listed: dict[str, Any]) -> tuple[JobInformer, JobCache]:
    """Return an informer that reads from a stand-in, and the cache of the one job."""
    board = JobInformer(WatchScope(config=ClusterConfig(), kind=kind, namespace="team"))
    board._client = cast("Any", StandInClient(found, list(listed)))
    return board, JobCache(replace(REF, kind=kind))


async def test_a_job_that_has_the_name_now_is_not_the_one_that_is_followed() -> None:
    theirs, _ = board_of("PyTorchJob", job("u-2"))
    ours, world = board_of("PyTorchJob", job("u-1"))

    assert await theirs._read_job(world) is None
    assert await ours._read_job(world) == job("u-1")


async def test_pods_of_another_job_of_the_name_are_not_shown() -> None:
    """By the owner reference of a pod, or by its creation time if it has none."""
    board, world = board_of("PyTorchJob", job(), *pods("u-2", "u-1")["items"])
    await board._list_pods(world)
    labels = {"jobset.sigs.k8s.io/jobset-name": "digits"}
    later = {"metadata": {"name": "n", "uid": "p", "labels": labels, "creationTimestamp": LATER}, "status": {}}
    after, before = board_of("TrainJob", job(), later)
    after._owners.learn({"metadata": {"name": "digits", "uid": "u-2", "creationTimestamp": LATER}})
    await after._list_pods(before)

    assert [pod["metadata"]["name"] for pod in world.pods.values()] == ["digits-worker-1"]
    assert list(before.pods.values()) == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [((200, job("u-2")), "the job is gone"), (403, "403")],
    ids=["another job of the name", "a job that may not be read: its training has succeeded"],
)
async def test_the_outputs_of_a_job_that_is_not_read_are_not_verified(answer: Any, why: str) -> None:
    async with stand_in_api_server(answer) as server:
        with pytest.raises(OutputsNotVerified, match=why):
            await KubernetesBackend(server.config()).inspect_outputs(REF, ResolvedOutputs(), since=datetime.now(UTC))

    assert [line.split()[0] for line in server.requests] == ["GET"]


@pytest.mark.parametrize(("owners", "gone"), [(("u-2",), True), (("u-2", "u-1"), False), ((), True)])
async def test_pods_of_another_job_of_the_name_do_not_run_for_this_one(owners: tuple[str, ...], *, gone: bool) -> None:
    """They carry the same labels."""
    async with stand_in_api_server((200, pods(*owners)), (200, pods(*owners))) as server:
        assert await KubernetesBackend(server.config()).pods_gone(REF) is gone


async def test_a_job_without_a_right_to_its_secret_is_taken_back_by_its_uid() -> None:
    config_map: Any = (201, {})
    denied = status(403, "Forbidden")
    async with stand_in_api_server((201, job()), config_map, denied, (200, {})) as server:
        with pytest.raises(PermissionDenied, match="credentials may be in a Secret of your own"):
            await KubernetesBackend(server.config()).submit(job(), secret=SECRET)

    assert server.requests[-1].startswith("DELETE ")
    assert server.bodies[-1].get("preconditions") == {"uid": "u-1"}
    arenas = server.bodies[1]["metadata"]
    assert [owner["uid"] for owner in arenas["ownerReferences"]] == ["u-1"], "Arena's ConfigMap goes with the job"


@pytest.mark.parametrize(("code", "level"), [(403, logging.DEBUG), (422, logging.INFO)])
async def test_a_missing_right_that_only_arena_uses_is_no_line_of_every_log(
    code: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="ptjob_provider")

    async with stand_in_api_server((201, job()), status(code, "No")) as server:
        await KubernetesBackend(server.config()).submit(job())

    assert [each.levelno for each in caplog.records if "`arena delete` will not find it" in each.message] == [level]


async def test_a_note_on_the_own_pod_is_of_one_uid() -> None:
    """A later pod may have the same name, and reports its own attempt."""
    async with stand_in_api_server(INVALID) as server:
        pod = OwnPod(config=server.config(), namespace="team", name="step", uid="p-1")
        with pytest.raises(ClusterError, match="team/step: another pod has the name now"):
            await pod.note("whose", "text")

    assert server.bodies[0]["metadata"].get("uid") == "p-1"


def event_at(message: str, at: str, *, uid: str, name: str = "digits-master-0", kind: str = "Pod") -> dict[str, Any]:
    """Return an event that the server received at that time of day."""
    about = {"kind": kind, "name": name, "uid": uid}
    return {"involvedObject": about, "message": message, "metadata": {"creationTimestamp": f"2026-11-20T{at}Z"}}


async def test_events_are_of_this_job_and_its_pods_and_not_of_an_earlier_one_of_the_name() -> None:
    """Pods of a PyTorchJob have the same names each time; leftovers of an earlier one may still emit events."""
    events = [
        event_at("this job was made", "12:00:00", uid="u-1", name="digits", kind="PyTorchJob"),
        event_at("an earlier job failed", "11:59:00", uid="u-0", name="digits", kind="PyTorchJob"),
        event_at("an earlier pod was placed", "11:50:00", uid="p-0"),
        event_at("an earlier pod is stopped", "12:00:01", uid="p-0"),
        event_at("the pod was placed", "12:00:01", uid="p-1"),
        event_at("the pod was made anew", "12:00:09", uid="p-2"),
        event_at("another job's pod was placed", "12:00:01", uid="p-3", name="others-master-0"),
    ]
    made = job() | {"metadata": {**job()["metadata"], "creationTimestamp": LATER}}
    listed = {"kind": "EventList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": events}
    async with stand_in_api_server((200, made), (200, listed)) as server:
        found = await ClusterInspector(server.config()).events(REF, ["digits-master-0"])

    assert [event["message"] for event in found] == ["this job was made", "the pod was placed", "the pod was made anew"]
