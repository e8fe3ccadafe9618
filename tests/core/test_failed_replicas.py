"""Tests of the list of replicas that failed by themselves, whatever the result of the job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ends import LOST, MASTER, RANKS, REF, VALUE_ERROR, WORKER, end, record_of
from ptjob_provider.core.diagnosis import failed_replicas, failed_replicas_text
from ptjob_provider.core.history import ContainerKind, Restarts
from ptjob_provider.core.run.outcome import success_text

if TYPE_CHECKING:
    from ptjob_provider.core.history import Termination

END = end(message=VALUE_ERROR)
NAMED = {
    "replica": WORKER,
    "rank": 1,
    "exit_code": 1,
    "cause": "python_exception",
    "message": "exited with code 1: ValueError: bad batch",
}


def test_a_replica_that_failed_is_named_with_its_rank_exit_code_and_cause() -> None:
    assert failed_replicas(record_of(end(MASTER, 0), END), ranks=RANKS) == [NAMED]


@pytest.mark.parametrize(
    "ended",
    [
        replace(END, exit_code=143),
        replace(END, exit_code=137, message="", stopped=True),
        replace(END, exit_code=1, message="", stopped=True),
        replace(END, kind=ContainerKind.SIDECAR),
    ],
    ids=["SIGTERM in the second of its deletion", "SIGKILL after the grace", "ends itself when stopped", "a sidecar"],
)
def test_a_replica_that_was_only_stopped_has_not_failed(ended: Termination) -> None:
    """The operator stops all running replicas when rank 0 has ended, and a sidecar does not train."""
    assert failed_replicas(record_of(ended), ranks=RANKS) == []


@pytest.mark.parametrize(
    ("ended", "cause"),
    [
        (replace(END, stopped=True), "python_exception"),
        (replace(END, exit_code=143, disruption="Evicted: The node was low on resource: memory."), "evicted"),
        (replace(END, exit_code=None, container="", disruption="NodeLost: no answer"), "node_lost"),
        (replace(END, message=LOST), "connection_lost"),
    ],
    ids=["raised before SIGTERM came", "evicted", "its node was lost", "lost its peer"],
)
def test_a_replica_with_a_reason_of_its_own_has_failed(ended: Termination, cause: str) -> None:
    """Its pod may already be terminating at that moment."""
    (found,) = failed_replicas(record_of(ended), ranks=RANKS)

    assert (found["cause"], found["exit_code"]) == (cause, ended.exit_code)


def test_the_last_run_of_a_replica_counts() -> None:
    """A failure that a restart overcame does not count; of two containers in a pod, the later end counts."""
    again = Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=1)

    assert failed_replicas(record_of(END, restart_counts=(again,)), ranks=RANKS) == []
    assert [one["exit_code"] for one in failed_replicas(record_of(END, end(code=3, at=61, run=1)), ranks=RANKS)] == [3]


def test_the_first_few_failed_replicas_are_named_by_rank() -> None:
    """A replica that was scaled down has no rank; the limit keeps the sentence readable with 1,000 replicas."""
    names = [f"digits-worker-{index}" for index in (4, 3, 2, 1)]
    record = record_of(*(end(name, message=VALUE_ERROR) for name in names))

    found = failed_replicas(record, ranks={name: int(name[-1]) for name in names[1:]})

    assert [(one["replica"][-1], one["rank"]) for one in found] == [("1", 1), ("2", 2), ("3", 3), ("4", None)]
    assert failed_replicas_text(found).endswith(
        "digits-worker-3 (rank 3) exited with code 1: ValueError: bad batch; 1 more failed"
    )
    assert failed_replicas_text(found[3:]) == "digits-worker-4 exited with code 1: ValueError: bad batch"


def test_the_last_sentence_about_a_success_names_them() -> None:
    """A result of an older version has no list."""
    assert success_text(REF, {}) == success_text(REF, {"failed_replicas": []}) == "team/digits succeeded"
    assert success_text(REF, {"failed_replicas": [NAMED]}) == (
        "team/digits succeeded, but digits-worker-0 (rank 1) exited with code 1: ValueError: bad batch"
    )
