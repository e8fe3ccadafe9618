"""Tests of whether the quota that refuses a pod has room for the whole job."""

from __future__ import annotations

from typing import Any

from pods import NOW, container, ended, pod
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Limits, diagnose, ending, in_brief
from ptjob_provider.core.history import PodHistory, WaitKind
from ptjob_provider.core.status import JobPhase, JobStatus
from rows import each_row

RANKS = {"digits-master-0": 0, "digits-worker-0": 1, "digits-worker-1": 2}
PENDING, FAILED = JobStatus(phase=JobPhase.PENDING), JobStatus(phase=JobPhase.FAILED)
SIX = {"limits": {"memory": "600Mi"}}


def role(replicas: int, **resources: Any) -> dict[str, Any]:
    return {"replicas": replicas, "template": {"spec": {"containers": [{"name": "pytorch", "resources": resources}]}}}


def job(master: dict[str, Any], workers: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a job of one master and two workers."""
    roles = {"Master": role(1, **master), "Worker": role(2, **(master if workers is None else workers))}
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
        (job(SIX), "requests.memory", "600Mi", "1Gi", "its 3 replicas need requests.memory=1800Mi together"),
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
    late = ending(record, PENDING, now=NOW, limits=Limits(queue_timeout=0), ranks=RANKS)
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
    assert in_brief("digits", record, PENDING, None, ranks=RANKS) == "quota compute too small"
