"""Which replicas failed by themselves, whatever became of the job; ends as the recorder has them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ptjob_provider.core.diagnosis import failed_replicas, failed_replicas_text
from ptjob_provider.core.history import ContainerKind, PodHistory, Restarts, Termination
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.run.outcome import success_text

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
RANKS = {"digits-master-0": 0, "digits-worker-0": 1}
TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nValueError: bad batch\n'
END = Termination(
    replica="digits-worker-0",
    pod_uid="u-1",
    key="u-1/pytorch/1",
    container="pytorch",
    exit_code=1,
    message=TRACEBACK,
    finished_at=NOON,
)
LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:525] Read error [10.0.0.1]:1: Connection reset by peer"
NAMED = {
    "replica": "digits-worker-0",
    "rank": 1,
    "exit_code": 1,
    "cause": "python_exception",
    "message": "exited with code 1: ValueError: bad batch",
}


def test_a_replica_that_failed_is_named_with_its_rank_exit_code_and_cause() -> None:
    record = PodHistory(terminations=(replace(END, replica="digits-master-0", key="0", exit_code=0), END))

    assert failed_replicas(record, ranks=RANKS) == [NAMED]


@pytest.mark.parametrize(
    "end",
    [
        replace(END, exit_code=143),
        replace(END, exit_code=137, message="", stopped=True),
        replace(END, exit_code=1, message="", stopped=True),
        replace(END, kind=ContainerKind.SIDECAR),
    ],
    ids=["SIGTERM in the second of its deletion", "SIGKILL after the grace", "ends itself when stopped", "a sidecar"],
)
def test_a_replica_that_was_only_stopped_has_not_failed(end: Termination) -> None:
    """The operator stops what still runs when rank 0 has ended; and a sidecar trains nothing."""
    assert failed_replicas(PodHistory(terminations=(end,)), ranks=RANKS) == []


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (replace(END, stopped=True), "python_exception"),
        (replace(END, exit_code=143, disruption="Evicted: The node was low on resource: memory."), "evicted"),
        (replace(END, exit_code=None, container="", disruption="NodeLost: no answer"), "node_lost"),
        (replace(END, message=TRACEBACK.replace("ValueError: bad batch", LOST)), "connection_lost"),
    ],
    ids=["raised before SIGTERM came", "evicted", "its node was lost", "lost its peer"],
)
def test_a_replica_with_a_reason_of_its_own_has_failed(end: Termination, cause: str) -> None:
    """Also where its pod was being deleted at that moment."""
    (found,) = failed_replicas(PodHistory(terminations=(end,)), ranks=RANKS)

    assert (found["cause"], found["exit_code"]) == (cause, end.exit_code)


def test_the_last_run_of_a_replica_counts() -> None:
    """A failure that a restart has overcome is none; of two containers of a pod the one that ended last is told of."""
    again = Restarts(replica="digits-worker-0", container="pytorch", pod_uid="u-1", count=1)
    second = replace(END, key="2", run=1, exit_code=3, message="", finished_at=NOON + timedelta(seconds=1))

    assert failed_replicas(PodHistory(terminations=(END,), restart_counts=(again,)), ranks=RANKS) == []
    assert [one["exit_code"] for one in failed_replicas(PodHistory(terminations=(END, second)), ranks=RANKS)] == [3]


def test_replicas_are_named_by_rank_and_the_first_few_are_told_of() -> None:
    """One that is scaled away by now has no rank; a sentence stays readable with a thousand of them."""
    names = [f"digits-worker-{index}" for index in (4, 3, 2, 1)]
    record = PodHistory(terminations=tuple(replace(END, replica=name, key=name) for name in names))

    found = failed_replicas(record, ranks={name: int(name[-1]) for name in names[1:]})

    assert [(one["replica"][-1], one["rank"]) for one in found] == [("1", 1), ("2", 2), ("3", 3), ("4", None)]
    assert failed_replicas_text(found).endswith(
        "digits-worker-3 (rank 3) exited with code 1: ValueError: bad batch; 1 more failed"
    )
    assert failed_replicas_text(found[3:]) == "digits-worker-4 exited with code 1: ValueError: bad batch"


def test_the_last_sentence_about_a_success_names_them() -> None:
    """A result of an older version has none."""
    ref = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="u")

    assert success_text(ref, {}) == success_text(ref, {"failed_replicas": []}) == "team/digits succeeded"
    assert success_text(ref, {"failed_replicas": [NAMED]}) == (
        "team/digits succeeded, but digits-worker-0 (rank 1) exited with code 1: ValueError: bad batch"
    )
