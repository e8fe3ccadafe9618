"""Tests of reporting the last lines of a failed replica: once, at once, and also if the job continues."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ends import NOW, end
from ptjob_provider.core.diagnosis import EndNotices
from ptjob_provider.core.history import ContainerKind

if TYPE_CHECKING:
    from ptjob_provider.core.history import Termination

END = end("digits-worker-1", 3, message="epoch 3\nValueError: x\n")


def test_an_end_notice_has_the_last_lines_of_the_replica() -> None:
    """The text is the one of a diagnosis."""
    (text,) = EndNotices(besides="digits-master-0").of([END])

    assert text == "digits-worker-1 exited with code 3; its last lines:\n    epoch 3\n    ValueError: x"


def test_each_end_of_a_replica_is_reported_once() -> None:
    words = EndNotices(besides="digits-master-0")
    words.of([END])

    assert words.of([END]) == []
    assert len(words.of([END, replace(END, key="pod/pytorch/2")])) == 1


@pytest.mark.parametrize(
    "ended",
    [
        replace(END, replica="digits-master-0"),
        replace(END, exit_code=0),
        replace(END, stopped=True),
        replace(END, kind=ContainerKind.SIDECAR),
    ],
    ids=["read anyway", "ended well", "was stopped", "a sidecar"],
)
def test_an_end_that_is_no_failure_of_another_replica_gives_no_notice(ended: Termination) -> None:
    assert EndNotices(besides="digits-master-0").of([ended]) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "was stopped after the job's end"),
        ({"finished_at": NOW}, "was killed by SIGKILL (exit code 137)"),
        ({"reason": "OOMKilled"}, "ran out of memory (OOMKilled, exit code 137)"),
        ({"exit_code": 3}, "exited with code 3"),
    ],
    ids=["cleaned up", "killed before", "out of memory", "failed"],
)
def test_a_replica_that_is_stopped_after_the_jobs_end_is_not_reported_as_killed(
    fields: dict[str, Any], message: str
) -> None:
    """The operator deletes running pods, and the kubelet kills those that ignore SIGTERM."""
    killed = replace(END, **{"exit_code": 137, "message": "", "finished_at": NOW + timedelta(seconds=2), **fields})

    assert EndNotices(besides="digits-master-0").of([killed], over_at=NOW) == [f"digits-worker-1 {message}"]
