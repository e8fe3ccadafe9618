"""Tests of the result value of a finished job."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from core.test_follow import MASTER, MODEL, NOON, WORKER, submission
from ptjob_provider.core.history import PodHistory, Restarts, Termination
from ptjob_provider.core.outputs.contract import OutputFacts, OutputReport, ResolvedOutput, ResolvedOutputs
from ptjob_provider.core.outputs.result import build_result
from ptjob_provider.core.status import JobPhase, JobStatus
from rows import each_row

JOB = replace(
    submission(model=True),
    gpus_of={MASTER: 2, WORKER: 2},
    outputs=ResolvedOutputs(
        model=MODEL, tfevents=ResolvedOutput(uri="pvc://c/tb", claim="c", path="tb", container_path="/data/tb")
    ),
)


def after(seconds: float) -> datetime:
    """Return the time this long after the job's creation."""
    return NOON + timedelta(seconds=seconds)


def result(report: OutputReport | None = None, *, ended: float | None = 90, **history: Any) -> dict[str, Any]:
    """Return the result of a job, by default of one that ran from its 30th second to its 90th."""
    finished_at = None if ended is None else after(ended)
    status = JobStatus(phase=JobPhase.SUCCEEDED, created_at=NOON, started_at=NOON, finished_at=finished_at)
    pods = PodHistory(**{"first_running_at": after(30), **history})
    return build_result(JOB, status=status, history=pods, report=report, diagnosis=None, now=after(90))


@each_row(
    ("ended", "ran", "times"),
    [
        (90, 30, (30, 60, 240)),  # GPU seconds begin when the first container runs
        (None, 30, (30, 60, 240)),  # so far
        (90, None, (90, 0, 0)),  # a job that never ran only waited
        (-10, -5, (0, 0, 0)),  # the clocks of the API server and the kubelet may differ
    ],
)
def test_time_in_the_queue_is_not_time_on_the_gpus(
    ended: float | None, ran: float | None, times: tuple[float, float, float]
) -> None:
    """Neither is ever negative."""
    found = result(ended=ended, first_running_at=None if ran is None else after(ran))

    assert (found["queue_seconds"], found["run_seconds"], found["gpu_seconds"]) == times


def test_gpu_seconds_lost_to_restarts_are_counted_by_replica() -> None:
    """An unknown replica has no GPUs."""
    runs = {WORKER: 10, "gone": 5}
    ends = [
        Termination(replica=name, key=name, container="c", exit_code=1, started_at=NOON, finished_at=after(lost))
        for name, lost in runs.items()
    ]
    counts = [Restarts(replica=name, container="c", pod_uid="", count=1) for name in runs]

    found = result(terminations=tuple(ends), restart_counts=tuple(counts))

    assert (found["gpu_seconds_lost"], found["restarts"]) == (20, 2)


def test_the_result_names_where_everything_is() -> None:
    """It is JSON, and the next task's templates find uri, size, hash, last scalars, and curves if there are any."""
    model = OutputFacts(exists=True, bytes=12, sha256="ab", in_doubt=True)
    events = OutputFacts(exists=True, last_step=5, scalars={"loss": 0.5}, curves={"loss": [[1, 2.0], [2, 0.5]]})

    found = result(OutputReport(model=model, tfevents=events))

    assert json.loads(json.dumps(found)) == found
    assert (found["model"]["uri"], found["model"]["bytes"], found["model"]["sha256"]) == ("pvc://c/m.pt", 12, "ab")
    assert (found["tfevents"]["scalars"], found["tfevents"]["curves"]) == (events.scalars, events.curves)
    assert (found["model"]["in_doubt"], found["tfevents"]["in_doubt"]) == (True, False)
    assert ("curves" in found["model"], found["start"]) == (False, "2026-11-20T12:00:00+00:00")


def test_an_output_that_is_not_there_has_no_place() -> None:
    missing = result(OutputReport(model=OutputFacts(exists=False), tfevents=None))

    assert (missing["model"], missing["tfevents"], result()["model"]) == (None, None, None)


def test_the_revision_that_was_trained_is_in_the_result() -> None:
    found = (result(revisions=("5ca1ab1e",)), result(revisions=("5ca1ab1e", "b")), result())

    assert [each["git_revision"] for each in found] == ["5ca1ab1e", None, None]
