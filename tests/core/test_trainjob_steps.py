"""Tests of the replicated jobs of a TrainJob, its steps: which one trains, and which replicas come before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fakes import ListSink, ScriptedBackend
from pods import NOW, RUNNING, container, ended, stamp
from ptjob_provider.cli import tables
from ptjob_provider.cli.logs import failed_first, find_replica
from ptjob_provider.cli.output import Failure
from ptjob_provider.core import kinds
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import waiting_reason
from ptjob_provider.core.history import PodHistory
from ptjob_provider.core.kinds import TRAINJOB
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.snapshot import look
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
    why = {"type": "Failed", "status": "True", "message": failed, "lastTransitionTime": stamp(9)}
    status = {"jobsStatus": statuses, "conditions": [why] if failed else []}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "digits", "namespace": "team", "uid": "u", "creationTimestamp": stamp(0), **meta},
        "spec": {"runtimeRef": {"name": "own"}, "trainer": {"numNodes": nodes}},
        **({"status": status} if steps else {}),
    }


def pod(step: str, state: dict[str, Any], *, phase: str = "Running") -> Manifest:
    """Return a pod of a step; the initializers' container has the step's name."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "digits",
        "jobset.sigs.k8s.io/replicatedjob-name": step,
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": "0",
    }
    own = step if step.endswith("initializer") else "node"
    return {
        "metadata": {"name": f"digits-{step}-0-0-x7kqp", "uid": step, "labels": labels, "creationTimestamp": stamp(0)},
        "spec": {"containers": [{"name": own}], "nodeName": "a"},
        "status": {"phase": phase, "containerStatuses": [container(state, name=own)]},
    }


def line(text: str) -> LogLine:
    cursor = LogCursor(pod_uid="p", container="node", restart_count=0, timestamp=stamp(1), ordinal=1)
    return LogLine(text=text, timestamp=stamp(1), cursor=cursor, continues=False)


async def followed(*worlds: Observation, silent: str = "") -> tuple[JobOutcome, ListSink]:
    """Return how a job ended whose runtime could not be read; each replica's log has its name as its only line.

    Args:
        worlds: what was seen of the job, look by look.
        silent: a replica without a log, as it never had a pod.
    """
    backend, sink = ScriptedBackend(), ListSink()
    backend.worlds = list(worlds)
    backend.lines_of = {
        name: [line(name)] for name in ("digits-node-0-0", "digits-launcher-0-0", "digits-dataset-initializer-0-0")
    }
    backend.lines_of[silent] = []
    return await follow(backend, Submission.of(job()), sink=sink), sink


@each_row(
    ("found", "names"),
    [
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
    """JobSet then stops the nodes, where sshd runs; nothing of theirs is in the log.

    Not even before the steps of the job are known: the pods' watch may be ahead of the job's.
    """
    nodes = [pod("node", RUNNING)]
    failed = [pod("node", RUNNING), pod("launcher", ended(3, end=8), phase="Failed")]

    outcome, sink = await followed(
        Observation(job=job(), pods=nodes),
        Observation(job=job(*MPI), pods=nodes),
        Observation(job=job(*MPI, ready=MPI), pods=[*nodes, pod("launcher", RUNNING)]),
        Observation(job=job(*MPI, failed="digits-launcher-0"), pods=failed),
    )

    assert outcome.outcome is Outcome.FAILED
    assert sink.lines == ["digits-launcher-0-0"]
    assert outcome.diagnosis is not None
    assert "digits-launcher-0-0 (rank 0) exited with code 3" in outcome.diagnosis.summary
    assert outcome.result is not None
    assert outcome.result["rank0"] == "digits-launcher-0-0"


def test_events_about_each_step_explain_missing_pods() -> None:
    """Each step has a Job of its own, which a quota may refuse."""
    assert set(kinds.controllers(job(*MPI))) == {
        ("JobSet", "digits"),
        ("Job", "digits-launcher-0"),
        ("Job", "digits-node-0"),
    }


# --- initializers


@pytest.mark.skips_waits
async def test_an_initializer_that_fails_is_named_as_the_cause_with_its_last_lines() -> None:
    """It has no rank; the nodes were never made."""
    failed = pod("dataset-initializer", ended(1, end=5), phase="Failed")

    outcome, sink = await followed(
        Observation(job=job(*TUNE), pods=[pod("dataset-initializer", RUNNING)]),
        Observation(job=job(*TUNE, failed="digits-dataset-initializer-0"), pods=[failed]),
        silent="digits-node-0-0",
    )

    why = outcome.diagnosis
    assert why is not None
    assert (why.replica, why.log_tail) == ("digits-dataset-initializer-0-0", ("digits-dataset-initializer-0-0",))
    assert why.summary.startswith("digits-dataset-initializer-0-0 exited with code 1")
    assert "rank" not in why.summary
    assert sink.lines == []


def test_a_job_whose_initializers_run_is_pending_and_says_which_pods_are_missing() -> None:
    """Its nodes come when they have ended: it does not wait in a queue, and it does not run yet."""
    found = job(*TUNE)
    pods = [pod(name, RUNNING) for name in TUNE[1:]]
    replicas = len(kinds.replicas(found)) + len(kinds.unranked(found))

    record = kinds.observe(PodHistory(), found, pods, [], now=NOW, replicas=replicas)
    status = kinds.observed_status(found, record)

    assert (status.phase, record.queued_since, record.all_running_at) == (JobPhase.PENDING, None, None)
    assert waiting_reason(record, status, replicas=replicas, rank0="digits-node-0-0") == "2 of 4 placed"


def test_initializers_are_replicas_without_a_rank() -> None:
    assert all(TRAINJOB.is_restarted(job(*TUNE), name) for name in kinds.unranked(job(*TUNE)).values())
    assert kinds.unranked(job(*TUNE)) == {name: f"digits-{name}-0-0" for name in TUNE[1:]}
    assert kinds.unranked(job(*MPI)) == kinds.unranked({"spec": {}}) == {}


@each_row("name", ["dataset-initializer", "dataset-initializer-0-0", "digits-dataset-initializer-0-0"])
def test_an_initializers_log_is_named_by_its_step(name: str) -> None:
    assert find_replica(job(*TUNE), name) == "digits-dataset-initializer-0-0"
    with pytest.raises(
        Failure, match="1 = digits-node-0-1, dataset-initializer = digits-dataset-initializer-0-0, model"
    ):
        find_replica(job(*TUNE), "launcher")


async def test_a_job_is_shown_with_its_initializers_and_the_one_that_failed_first() -> None:
    backend = ScriptedBackend()
    found = job(*TUNE, nodes=1, failed="digits-model-initializer-0")
    backend.jobs["team", "digits"] = found
    failed = pod("model-initializer", ended(1, end=5), phase="Failed")
    backend.worlds = [Observation(job=found, pods=[pod("dataset-initializer", ended(0)), failed])]

    snapshot = await look(backend, "team", "digits", kind="TrainJob", inspect=False)

    table = tables.replicas(snapshot)
    assert [row[:2] for row in table.rows] == [
        ("0", "digits-node-0-0"),
        ("", "digits-dataset-initializer-0-0"),
        ("", "digits-model-initializer-0-0"),
    ]
    assert snapshot.to_dict()["replicas"][-1] == {"name": "digits-model-initializer-0-0", "rank": None}
    assert failed_first(snapshot, {"digits-node-0-0"}) == (
        "model-initializer-0-0 failed first: ptjob logs digits -i model-initializer-0-0"
    )
