"""Tests of the replicated jobs of a TrainJob, its steps: which one trains, and which replicas come before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fakes import ListSink, ScriptedBackend
from pods import RUNNING, container, ended, stamp
from ptjob_provider.core import kinds
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.history import PodHistory
from ptjob_provider.core.kinds import TRAINJOB
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.status import JobPhase
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

MPI = ("node", "launcher")
TUNE = ("node", "dataset-initializer", "model-initializer")


def job(*steps: str, nodes: int = 2, ready: tuple[str, ...] = (), failed: str = "", **meta: Any) -> Manifest:
    """Return a job whose JobSet has these steps, as Trainer copies them to its status."""
    statuses = [{"name": name, "ready": int(name in ready), "active": 1} for name in steps]
    why = {
        "type": "Failed",
        "status": "True",
        "reason": "FailedJobs",
        "message": failed,
        "lastTransitionTime": stamp(9),
    }
    status = {"jobsStatus": statuses, "conditions": [why] if failed else []}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "digits", "namespace": "team", "uid": "u", "creationTimestamp": stamp(0), **meta},
        "spec": {"runtimeRef": {"name": "own"}, "trainer": {"numNodes": nodes}},
        **({"status": status} if steps else {}),
    }


def pod(step: str, state: dict[str, Any], *, index: int = 0, phase: str = "Running") -> Manifest:
    """Return a pod of a step; the initializers' container has the step's name."""
    name = f"digits-{step}-0-{index}"
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "digits",
        "jobset.sigs.k8s.io/replicatedjob-name": step,
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    own = step if step.endswith("initializer") else "node"
    return {
        "metadata": {"name": f"{name}-x7kqp", "uid": name, "labels": labels, "creationTimestamp": stamp(0)},
        "spec": {"containers": [{"name": own}], "nodeName": "a"},
        "status": {
            "phase": phase,
            "containerStatuses": [container(state, name=own)],
            "conditions": [{"type": "PodScheduled", "status": "True"}],
        },
    }


def line(text: str) -> LogLine:
    cursor = LogCursor(pod_uid="p", container="node", restart_count=0, timestamp=stamp(1), ordinal=1)
    return LogLine(text=text, timestamp=stamp(1), cursor=cursor, continues=False)


async def followed(*worlds: Observation) -> tuple[JobOutcome, ListSink]:
    """Return how a job ended whose runtime could not be read; each replica's log has its name as its only line."""
    backend, sink = ScriptedBackend(), ListSink()
    backend.worlds = list(worlds)
    backend.lines_of = {
        name: [line(name)] for name in ("digits-node-0-0", "digits-launcher-0-0", "digits-dataset-initializer-0-0")
    }
    return await follow(backend, Submission.of(job()), sink=sink), sink


@each_row(
    ("found", "names"),
    [
        (job(), ["digits-node-0-0", "digits-node-0-1"]),
        (job("node"), ["digits-node-0-0", "digits-node-0-1"]),
        (job(*MPI), ["digits-launcher-0-0", "digits-node-0-0"]),
        (job(*MPI, nodes=3), ["digits-launcher-0-0", "digits-node-0-0", "digits-node-0-1"]),
        (job(*MPI, nodes=1), ["digits-launcher-0-0", "digits-node-0-0"]),
        (job(*TUNE, nodes=1), ["digits-node-0-0"]),
    ],
)
def test_a_launcher_in_the_jobs_status_is_rank_0(found: Manifest, names: list[str]) -> None:
    """A launcher counts as a node unless the job says otherwise; Trainer runs a node beside it even for one."""
    assert [(each.name, each.rank) for each in kinds.replicas(found)] == [(name, n) for n, name in enumerate(names)]


def test_a_job_runs_when_the_step_that_trains_is_ready() -> None:
    """The launcher starts when its nodes are ready; then nothing trains yet."""
    ready = [(), ("node",), ("node", "launcher")]

    phases = [TRAINJOB.read_status(job(*MPI, ready=each)).phase for each in ready]

    assert phases == [JobPhase.PENDING, JobPhase.PENDING, JobPhase.RUNNING]


@pytest.mark.skips_waits
async def test_a_launcher_that_fails_is_the_cause_and_its_log_is_the_jobs() -> None:
    """JobSet then stops the nodes, where sshd runs; nothing of theirs is in the log."""
    nodes = [pod("node", RUNNING)]
    failed = [pod("node", RUNNING), pod("launcher", ended(3, end=8), phase="Failed")]

    outcome, sink = await followed(
        Observation(job=job()),
        Observation(job=job(*MPI), pods=nodes),
        Observation(job=job(*MPI, ready=MPI), pods=[*nodes, pod("launcher", RUNNING)]),
        Observation(job=job(*MPI, failed="digits-launcher-0"), pods=failed),
    )

    assert outcome.outcome is Outcome.FAILED
    assert sink.lines == ["digits-launcher-0-0"]
    assert outcome.diagnosis is not None
    assert outcome.diagnosis.replica == "digits-launcher-0-0"
    assert "digits-launcher-0-0 (rank 0) exited with code 3" in outcome.diagnosis.summary
    assert outcome.result is not None
    assert outcome.result["rank0"] == "digits-launcher-0-0"


@pytest.mark.skips_waits
async def test_no_log_is_read_before_the_steps_of_the_job_are_known() -> None:
    """The pods' watch may be ahead of the job's: a node that runs may be that of a launcher."""
    _, sink = await followed(
        Observation(job=job(), pods=[pod("node", RUNNING)]),
        Observation(job=job(*MPI, ready=MPI), pods=[pod("node", RUNNING), pod("launcher", RUNNING)]),
        Observation(job=job(*MPI, failed="x"), pods=[pod("launcher", ended(3), phase="Failed")]),
    )

    assert sink.lines == ["digits-launcher-0-0"]


def test_events_about_each_step_explain_missing_pods() -> None:
    """Each step has a Job of its own, which a quota may refuse."""
    assert set(kinds.controllers(job(*MPI))) == {
        ("JobSet", "digits"),
        ("Job", "digits-launcher-0"),
        ("Job", "digits-node-0"),
    }


def test_a_history_of_odd_steps_is_still_read() -> None:
    """A status of another version, or of nobody, stops no other job."""
    odd = job(*MPI) | {"status": {"jobsStatus": [{"name": None}, {}]}}

    assert kinds.observe(PodHistory(), odd, [], [], now=TRAINJOB.read_status(job()).created_at or 0)  # type: ignore[arg-type]
