"""Terminations and waits of a job with two replicas, as the pod history has them, and diagnoses of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ptjob_provider.core.diagnosis import Diagnosis, diagnose
from ptjob_provider.core.history import PodHistory, Termination, Waiting, WaitKind
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.status import JobPhase, JobStatus

NOW = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
TEN_SECONDS_LATER = NOW + timedelta(seconds=10)
FAILED = JobStatus(phase=JobPhase.FAILED)
WAITING = JobStatus(phase=JobPhase.PENDING)
REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="1")
MASTER, WORKER = "digits-master-0", "digits-worker-0"
RANKS = {MASTER: 0, WORKER: 1}
VALUE_ERROR = 'Traceback (most recent call last):\n  File "/app/train.py", line 3, in <module>\nValueError: bad batch\n'
NAME_ERROR = VALUE_ERROR.replace("ValueError: bad batch", "NameError: name 'batch' is not defined")
LOST = VALUE_ERROR.replace(
    "ValueError: bad batch", "RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by"
)


def end(replica: str = WORKER, code: int | None = 1, *, at: float = 60, **more: Any) -> Termination:
    fields = {"key": f"{replica}/{at}", "container": "pytorch", "finished_at": NOW + timedelta(seconds=at)}
    return Termination(**{**fields, **more, "replica": replica, "exit_code": code})


def record_of(*ends: Termination, **more: Any) -> PodHistory:
    return PodHistory(terminations=ends, **more)


def judged(*ends: Termination, status: JobStatus = FAILED, **more: Any) -> Diagnosis:
    return diagnose(record_of(*ends, **more), status, ranks=RANKS)


def wait(
    kind: WaitKind, replica: str = WORKER, *, reason: str = "Reason", message: str = "", since: float = 0
) -> Waiting:
    at = NOW + timedelta(seconds=since)
    return Waiting(replica=replica, kind=kind, reason=reason, message=message, since=at, container="pytorch")
