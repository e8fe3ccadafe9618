"""The value that a finished job comes back as."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.outputs.contract import OutputFacts, OutputReport, ResolvedOutput, ResolvedOutputs
from ptjob_provider.core.outputs.result import Usage, build_result, measure
from ptjob_provider.core.status import JobPhase, JobStatus

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="u-1")
STATUS = JobStatus(phase=JobPhase.SUCCEEDED, started_at=NOON, finished_at=NOON + timedelta(seconds=90))
OUTPUTS = ResolvedOutputs(
    model=ResolvedOutput(uri="pvc://c/m.pt", claim="c", path="m.pt", container_path="/data/m.pt"),
    tfevents=ResolvedOutput(uri="pvc://c/tb", claim="c", path="tb", container_path="/data/tb"),
    checkpoints=None,
)


def used(**changes: object) -> Usage:
    base: dict[str, object] = {
        "created_at": NOON,
        "running_at": NOON + timedelta(seconds=30),
        "finished_at": NOON + timedelta(seconds=90),
        "gpus": 4,
        "lost_runs": {},
        "gpus_of": {"m": 2, "w": 2},
        "restarts": 0,
    }
    return measure(**(base | changes))  # type: ignore[arg-type]


def test_time_in_the_queue_is_not_time_on_the_gpus() -> None:
    """GPU seconds begin when the first container runs."""
    usage = used()

    assert (usage.queue_seconds, usage.run_seconds, usage.gpu_seconds) == (30, 60, 240)


def test_what_restarts_lost_is_counted_by_replica() -> None:
    """A replica that nobody knows has no GPUs."""
    usage = used(lost_runs={"w": 10.0, "gone": 5.0}, restarts=2)

    assert (usage.gpu_seconds_lost, usage.restarts) == (20, 2)


def test_a_job_that_never_ran_only_waited() -> None:
    """All its time was queue time."""
    usage = used(running_at=None)

    assert (usage.queue_seconds, usage.run_seconds, usage.gpu_seconds) == (90, 0, 0)


def test_clocks_that_disagree_never_give_negative_times() -> None:
    """The API server's clock and the kubelet's may differ."""
    usage = used(running_at=NOON - timedelta(seconds=5), finished_at=NOON - timedelta(seconds=10))

    assert (usage.queue_seconds, usage.run_seconds) == (0, 0)


def test_the_result_names_where_everything_is() -> None:
    """It is JSON, and the next task's templates find uri, size, hash and last scalars."""
    facts = OutputFacts(exists=True, bytes=12, sha256="ab", last_step=5, scalars={"accuracy": 0.98})

    result = build_result(
        ref=REF, attempt=1, status=STATUS, usage=used(), rank0="digits-master-0", outputs=OUTPUTS,
        report=OutputReport(model=facts, tfevents=facts), diagnosis=None,
    )  # fmt: skip

    assert json.loads(json.dumps(result)) == result
    assert result["model"]["uri"] == "pvc://c/m.pt"
    assert (result["model"]["bytes"], result["model"]["sha256"]) == (12, "ab")
    assert result["tfevents"]["scalars"] == {"accuracy": 0.98}
    assert result["start"] == "2026-11-20T12:00:00+00:00"


def test_curves_are_in_the_result_of_whom_asked_for_them() -> None:
    """An XCom holds no thousands of points."""
    facts = OutputFacts(exists=True, scalars={"loss": 0.5}, curves={"loss": [[1, 2.0], [2, 0.5]]})
    found = OutputReport(model=OutputFacts(exists=True), tfevents=facts)

    result = build_result(
        ref=REF, attempt=1, status=STATUS, usage=used(), rank0="digits-master-0", outputs=OUTPUTS, report=found,
        diagnosis=None,
    )  # fmt: skip

    assert result["tfevents"]["curves"] == {"loss": [[1, 2.0], [2, 0.5]]}
    assert "curves" not in result["model"]


def test_an_output_that_is_not_there_has_no_place() -> None:
    """Neither an undeclared output nor a missing one, nor anything that nobody looked at."""
    missing = OutputReport(model=OutputFacts(exists=False), tfevents=None)

    result = build_result(
        ref=REF, attempt=1, status=STATUS, usage=used(), rank0="m", outputs=OUTPUTS, report=missing, diagnosis=None
    )
    unseen = build_result(
        ref=REF, attempt=1, status=STATUS, usage=used(), rank0="m", outputs=OUTPUTS, report=None, diagnosis=None
    )

    assert (result["model"], result["tfevents"]) == (None, None)
    assert unseen["model"] is None


@pytest.mark.parametrize(("told", "seen"), [("5ca1ab1e", "5ca1ab1e"), ("", None)])
def test_the_revision_that_was_trained_is_in_the_result(told: str, seen: str | None) -> None:
    """Where somebody has told of one."""
    result = build_result(
        ref=REF, attempt=1, status=STATUS, usage=used(), rank0="m", outputs=OUTPUTS, report=None, diagnosis=None,
        git_revision=told,
    )  # fmt: skip

    assert result["git_revision"] == seen
