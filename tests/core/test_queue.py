"""Tests of Kueue's Workload: the reason why a job waits, the API versions that are read, and the reason's outputs."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api_server_stand_in import SILENT, stand_in_api_server
from ends import FAILED, NOW, WAITING
from pods import container, ended, look, pod
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Limits, diagnose, ending, in_brief, waiting_reason
from ptjob_provider.core.history import PodHistory, WaitKind, from_text, to_text
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds.queue import as_event, owner_of
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.informer import events as reasons
from ptjob_provider.core.kubernetes.informer.cache import JobCache
from ptjob_provider.core.kubernetes.informer.events import EventPoller
from ptjob_provider.core.kubernetes.inspector import ClusterInspector
from ptjob_provider.core.status import JobPhase, JobStatus
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.informer.usage_sampler import UsageSampler

pytestmark = pytest.mark.skips_waits

SUSPENDED = JobStatus(phase=JobPhase.SUSPENDED)
WHY = "couldn't assign flavors to pod set master: insufficient unused quota for cpu in flavor default, 600m more needed"
PATIENCE = 60.0
UNSERVED = (404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not served"})
SINCE = "2026-11-20T10:05:00Z"


def workload(*conditions: tuple[str, str, str], **meta: Any) -> dict[str, Any]:
    """Return a Workload with the fields that Kueue's v1beta1 and v1beta2 share."""
    written = [
        {"type": kind, "status": status, "reason": "R", "message": text, "lastTransitionTime": SINCE}
        for kind, status, text in conditions
    ]
    found = {"name": "pytorchjob-digits-1", "namespace": "team", "uid": "w-1", **meta}
    return {"metadata": found, "status": {"conditions": written}}


@each_row(
    ("conditions", "message"),
    [
        ([("QuotaReserved", "False", WHY)], WHY),
        ([("QuotaReserved", "True", "reserved"), ("Admitted", "False", "waits for checks")], "waits for checks"),
        ([("QuotaReserved", "False", WHY), ("Evicted", "True", "preempted")], "preempted"),
        ([("QuotaReserved", "True", "reserved"), ("Evicted", "False", "not")], None),
        ([("QuotaReserved", "False", "")], None),
    ],
)
def test_the_condition_that_keeps_a_workload_waiting_is_read(conditions: list[Any], message: str | None) -> None:
    found = as_event(workload(*conditions))

    assert (found or {}).get("message") == message
    if found is not None:
        assert found["involvedObject"]["kind"] == "Workload"
        assert found["metadata"]["uid"] == "w-1"
        assert (found["type"], found["lastTimestamp"]) == ("Warning", SINCE)


@each_row(
    ("reason", "added"),
    [
        ("Pending", ""),
        (
            "Misconfigured",
            " (Misconfigured: waiting does not help until the queue exists and its configuration is right)",
        ),
        (
            "ExceedsMaxQuota",
            " (ExceedsMaxQuota: waiting does not help: the job requests more than the queue can ever have)",
        ),
    ],
)
def test_a_reason_that_waiting_does_not_change_is_said_with_advice(reason: str, added: str) -> None:
    """Kueue 0.19 gives the reason; a message alone does not show whether the quota will ever suffice."""
    found = workload(("QuotaReserved", "False", WHY))
    found["status"]["conditions"][0]["reason"] = reason

    event = as_event(found)

    assert event is not None
    assert event["message"] == f"{WHY}{added}"


def test_a_workload_says_whose_it_is() -> None:
    """By its label, otherwise by its controller."""
    owners = [{"uid": "other"}, {"uid": "j-2", "controller": True}]

    assert owner_of(workload(labels={"kueue.x-k8s.io/job-uid": "j-1"}, ownerReferences=owners)) == "j-1"
    assert owner_of(workload(ownerReferences=owners)) == "j-2"
    assert owner_of(workload()) == ""


REF = JobRef(kind="TrainJob", namespace="team", name="digits", uid="j-3")
QUEUED_JOB: dict[str, Any] = {
    "kind": "TrainJob",
    "metadata": {"name": "digits", "namespace": "team", "uid": "j-3", "creationTimestamp": SINCE}
    | {"labels": {"kueue.x-k8s.io/queue-name": "night"}},
    "spec": {"suspend": True, "trainer": {"numNodes": 1}},
    "status": {"conditions": [{"type": "Suspended", "status": "True", "reason": "Suspended"}]},
}


def suspended() -> JobCache:
    """Return the cache of a TrainJob that a queue keeps suspended."""
    world = JobCache(REF)
    world.set_job(QUEUED_JOB)
    return world


def workloads(version: str) -> tuple[int, dict[str, Any]]:
    """Return the answer of a server that serves this version, with the TrainJob's Workload."""
    found = workload(("QuotaReserved", "False", WHY), labels={"kueue.x-k8s.io/job-uid": "j-3"})
    meta = {"resourceVersion": "7"}
    return 200, {"kind": "WorkloadList", "apiVersion": f"kueue.x-k8s.io/{version}", "metadata": meta, "items": [found]}


async def run(reading: EventPoller | UsageSampler, client: Client, *, until: Callable[[], bool]) -> None:
    """Let it read until this holds."""
    task = asyncio.create_task(reading.run(client))
    async with asyncio.timeout(PATIENCE):
        while not until():  # noqa: ASYNC110 - no notification
            await asyncio.sleep(0.01)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def asked(monkeypatch: pytest.MonkeyPatch, *script: Any) -> tuple[list[str], list[str]]:
    """Read the waiting reason until the script is over; return the requested versions, and the messages of the job."""
    monkeypatch.setattr(reasons, "_SETTLING", 0.01)
    monkeypatch.setattr(reasons, "_PAUSES", (0.01, 0.01))
    world, reading = suspended(), EventPoller("team")
    async with stand_in_api_server(*script) as server, shared_client(server.config(attempts=1)) as client:
        reading.update(world)
        await run(reading, client, until=lambda: len(server.requests) > len(script))
    paths = [line.split()[1] for line in server.requests[: len(script)]]
    assert all(path.endswith("/workloads?labelSelector=kueue.x-k8s.io/job-uid%3Dj-3&limit=500") for path in paths), (
        paths
    )
    seen = await anext(world.observations())
    return [path.split("/")[3] for path in paths], [str(event["message"]) for event in seen.events]


NEWER, OLDER = "v1beta2", "v1beta1"
FORBIDDEN = "cannot read why it waits: read workloads in team: said 403 (403 Forbidden)"


@pytest.mark.parametrize(
    ("script", "versions", "reasons"),
    [
        ((workloads(NEWER), workloads(NEWER)), [NEWER, NEWER], [WHY]),
        ((UNSERVED, workloads(OLDER), workloads(OLDER)), [NEWER, OLDER, OLDER], [WHY]),
        ((UNSERVED, workloads(OLDER), UNSERVED, workloads(NEWER)), [NEWER, OLDER, OLDER, NEWER], [WHY]),
        ((UNSERVED, UNSERVED), [NEWER, OLDER], []),
        ((403, 403), [NEWER, NEWER], [FORBIDDEN]),  # permissions do not depend on the version
    ],
    ids=["a new server", "an old one", "one that is upgraded", "no Kueue", "forbidden"],
)
async def test_workloads_are_read_in_the_version_that_the_server_serves(
    monkeypatch: pytest.MonkeyPatch, script: tuple[Any, ...], versions: list[str], reasons: list[str]
) -> None:
    """If a version is served, no other is requested; without any, nothing is reported."""
    assert await asked(monkeypatch, *script) == (versions, reasons)


OTHER = JobRef(kind="PyTorchJob", namespace="team", name="other", uid="j-4")


async def test_a_job_in_a_queue_is_shown_what_its_queue_says_and_nothing_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also while events of another job are read, because each change wakes the followers of the job."""
    monkeypatch.setattr(reasons, "_SETTLING", 0.01)
    monkeypatch.setattr(reasons, "_PAUSES", (0.01, 0.01))
    queued, other, reading = suspended(), JobCache(OTHER), EventPoller("team")
    meta = {"name": "other", "namespace": "team", "uid": "j-4", "creationTimestamp": SINCE}
    other.set_job({"kind": "PyTorchJob", "metadata": meta, "spec": {"pytorchReplicaSpecs": {}}})
    shown: list[set[str]] = []

    def set_events(world: JobCache, events: dict[str, Any]) -> None:
        if world is queued:
            shown.append(set(events))

    monkeypatch.setattr(JobCache, "set_events", set_events)

    async with stand_in_api_server(*[EMPTY, workloads(NEWER)] * 3) as server, shared_client(server.config()) as client:
        for world in (queued, other):
            reading.update(world)
        await run(reading, client, until=lambda: len(shown) >= 3)

    assert shown[:3] == [{"w-1"}] * 3


async def test_a_single_look_sends_one_request_at_once() -> None:
    world = suspended()
    async with stand_in_api_server(workloads(NEWER)) as server, shared_client(server.config()) as client:
        await EventPoller("team").read_now(client, world)

    assert [str(event["message"]) for event in world.events] == [WHY]
    assert len(server.requests) == 1


async def test_a_single_look_does_not_wait_for_an_unresponsive_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "_IMPATIENT", 0.1)
    world = suspended()
    async with (
        stand_in_api_server(SILENT) as server,
        shared_client(server.config()) as client,
        asyncio.timeout(PATIENCE),
    ):
        await EventPoller("team").read_now(client, world)

    assert list(world.events) == []


EMPTY = (200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((workloads(NEWER),), [("Workload", WHY)]),
        ((403,), [("TrainJob", FORBIDDEN)]),
    ],
    ids=["a queue", "forbidden"],
)
async def test_the_reason_of_its_queue_is_among_a_jobs_events(answers: tuple[Any, ...], expected: list[Any]) -> None:
    """`ptjob events` shows it with its time; without the right, the other events are shown all the same."""
    async with stand_in_api_server((200, QUEUED_JOB), *answers, *[EMPTY] * 3) as server:
        found = await ClusterInspector(server.config(attempts=1)).events(REF, ["digits-node-0-0-x"])

    assert [(each["involvedObject"]["kind"], each["message"]) for each in found] == expected
    assert all("metadata" in each for each in found)


async def test_the_queues_reason_for_a_later_job_of_the_name_is_left_out() -> None:
    earlier = replace(REF, uid="j-2")
    async with stand_in_api_server((200, QUEUED_JOB), *[EMPTY] * 3) as server:
        found = await ClusterInspector(server.config(attempts=1)).events(earlier, ["digits-node-0-0-x"])

    assert (list(found), any("workloads" in line for line in server.requests)) == ([], False)


def test_the_waiting_reason_of_a_suspended_job_is_that_of_its_queue() -> None:
    """While it is suspended; the reason stays if the queue is silent later, and the record on the job keeps it."""
    event = as_event(workload(("QuotaReserved", "False", WHY)))
    assert event is not None

    record = look(look(PodHistory(), events=[event]))

    assert waiting_reason(record, SUSPENDED, replicas=1, rank0="digits-master-0") == f"suspended by its queue: {WHY}"
    assert "queue" not in waiting_reason(record, WAITING, replicas=1, rank0="digits-master-0")
    assert from_text(to_text(record)).queue == WHY


def test_the_failure_at_a_queue_timeout_says_what_the_queue_said() -> None:
    """The failure shows what the queue lacked."""
    record = PodHistory(queued_since=NOW, queue=WHY)

    found = ending(record, SUSPENDED, now=NOW.replace(hour=12), limits=Limits(queue_timeout=10), ranks={})

    assert found is not None
    assert found.summary == f"it was still suspended after 10 s; its queue says: {WHY}"


# --- whether the quota that refuses a pod has room for the whole job


RANKS = {"digits-master-0": 0, "digits-worker-0": 1, "digits-worker-1": 2}
SIX = {"limits": {"memory": "600Mi"}}


def role_of(replicas: int, **resources: Any) -> dict[str, Any]:
    return {"replicas": replicas, "template": {"spec": {"containers": [{"name": "pytorch", "resources": resources}]}}}


def job(master: dict[str, Any], workers: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a job of one master and two workers."""
    roles = {"Master": role_of(1, **master), "Worker": role_of(2, **(master if workers is None else workers))}
    meta = {"name": "digits", "namespace": "team", "uid": "u", "creationTimestamp": "2026-11-20T10:00:00Z"}
    return {"kind": "PyTorchJob", "metadata": meta, "spec": {"pytorchReplicaSpecs": roles}}


def refused(job: dict[str, Any], why: str, *, replica: str = "digits-master-0") -> PodHistory:
    """Return the history of the job after a quota has refused one of its pods."""
    message = f'Error creating: pods "{replica}" is forbidden: exceeded quota: {why}'
    event = {
        "reason": "FailedCreatePod",
        "message": message,
        "involvedObject": {"kind": "PyTorchJob", "name": "digits"},
    }
    return kinds.observe(PodHistory(), job, [], [event], now=NOW, replicas=3)


def figures(resource: str, *, asked: str, allowed: str) -> str:
    return f"compute, requested: {resource}={asked}, used: {resource}=0, limited: {resource}={allowed}"


@each_row(
    ("job", "resource", "asked", "allowed", "said"),
    [
        (job(SIX), "limits.memory", "600Mi", "1800Mi", ""),
        (job(SIX), "limits.memory", "600Mi", "1Gi", "need limits.memory=1800Mi together, it allows 1Gi, so"),
        (job({}), "memory", "600Mi", "1Gi", ""),  # the requests of its workers are not in its object
        (job({}, SIX), "memory", "100Mi", "1Gi", "need memory=1300Mi together"),
        (job({}, {"requests": {"cpu": 2}, "limits": {"cpu": 4}}), "cpu", "500m", "4", "need cpu=4500m together"),
        (job({}, {"requests": {"cpu": 2}, "limits": {"cpu": 4}}), "limits.cpu", "1", "8", "need limits.cpu=9 together"),
        (job({}), "pods", "1", "2", "its 3 replicas need pods=3 together"),
        (job(SIX), "limits.memory", "2Gi", "1Gi", "allows limits.memory=1Gi in all, less than the 2Gi requested"),
    ],
)
def test_waiting_for_a_quota_that_is_smaller_than_the_job_is_in_vain(
    job: dict[str, Any], resource: str, asked: str, allowed: str, said: str
) -> None:
    """`used` may be the job's own pods alone: while they wait for the refused one, nothing is ever freed."""
    record = refused(job, figures(resource, asked=asked, allowed=allowed))

    (wait,) = record.waiting
    assert wait.kind is WaitKind.REFUSED
    assert (said in wait.in_vain) if said else wait.in_vain == ""


@each_row(
    "why", ["compute: no figures", *(figures("limits.memory", asked="600Mi", allowed=end) for end in ("", "1G..."))]
)
def test_a_refusal_that_cannot_be_read_may_have_room_later(why: str) -> None:
    (wait,) = refused(job(SIX), why).waiting

    assert wait.in_vain == ""


def test_a_job_that_its_quota_cannot_hold_is_not_tried_again() -> None:
    """Neither after the queue timeout, nor if a worker gave up waiting for the master that was refused."""
    record = refused(job(SIX), figures("limits.memory", asked="600Mi", allowed="1Gi"))
    late = ending(record, WAITING, now=NOW, limits=Limits(queue_timeout=0), ranks=RANKS)
    gave_up = pod(phase="Failed")
    gave_up["status"]["initContainerStatuses"] = [container(ended(1), name="init-pytorch")]
    seen = kinds.observe(record, job(SIX), [gave_up], [], now=NOW, replicas=3)
    failed = diagnose(seen, FAILED, ranks=RANKS)

    for found in (late, failed):
        assert found is not None
        assert (found.cause.value, found.retryable) == ("quota", False)
        assert ": the quota compute is smaller than the job: " in found.summary
        assert "requested" not in found.summary
        assert found.resolution == "Ask for less or raise the quota; a retry would fail the same way"
        assert in_brief("digits", record, FAILED, found, ranks=RANKS) == "master-0: quota compute too small"
    assert "gave up waiting for it" in failed.summary
    assert in_brief("digits", record, WAITING, None, ranks=RANKS) == "quota compute too small"
