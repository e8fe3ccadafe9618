"""Tests of reading the training container's runs from a pod's status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import pods
from ptjob_provider.core.kubernetes.logs import parse, runs
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

FIRST, SECOND = "2026-11-20T10:00:00Z", "2026-11-20T10:01:00Z"
NEVER = "1970-01-01T00:00:00Z"
RUNNING = {"running": {"startedAt": SECOND}}
WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}


def ended(started_at: str = FIRST, code: int = 1) -> dict[str, Any]:
    """Return the state of a container that has terminated."""
    return {"terminated": {"startedAt": started_at, "exitCode": code}}


def pod(
    state: dict[str, Any], *, count: int = 1, last: Any = None, phase: str = "Running", policy: str = "OnFailure"
) -> Manifest:
    """Return a pod with a training container in this state, and with a sidecar."""
    found = pods.pod(pods.container({}, name="sidecar"), pods.container(state, count, **(last or {})), phase=phase)
    return found | {"spec": {"restartPolicy": policy}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod(RUNNING), (1, SECOND, False)),
        (pod(ended(SECOND), last=ended()), (1, SECOND, True)),
        (pod(WAITING, last=ended(SECOND)), (1, SECOND, True)),
        (pod(WAITING, count=0), None),
        (pod(ended(NEVER)), None),
        ({"metadata": {"uid": "pod"}, "status": {}}, None),
        (None, None),
    ],
    ids=["runs", "has ended", "waits for its next start", "has not begun", "could not begin", "unknown", "no pod"],
)
def test_the_newest_run_is_the_last_that_began(found: Manifest | None, expected: tuple[int, str, bool] | None) -> None:
    run = runs.newest(found)

    assert (run and (run.restart_count, run.started_at, run.ended)) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod(RUNNING, last=ended()), (0, FIRST, True)),
        (pod(RUNNING, count=0), None),
        (pod(RUNNING, last=ended(NEVER)), None),
        (pod(WAITING, last=ended()), None),
    ],
    ids=["in the last state", "there was none", "it could not begin", "the last state is the newest run's"],
)
def test_the_run_before_is_read_from_the_last_state(found: Manifest, expected: tuple[int, str, bool] | None) -> None:
    """If the container waits, the last state is that of the newest run."""
    newest = runs.newest(found)
    assert newest is not None

    run = runs.before(found, newest)

    assert (run and (run.restart_count, run.started_at, run.ended)) == expected


@each_row(
    ("found", "expected"),
    [
        (pod(RUNNING), False),
        (pod(RUNNING, phase="Failed"), True),
        (pod(ended()), False),
        (pod(ended(code=0)), True),
        (pod(ended(), policy="Never"), True),
        (pod(ended(code=0), policy="Always"), False),
    ],
)
def test_a_container_has_stopped_when_its_pod_does_not_start_it_again(found: Manifest, expected: bool) -> None:  # noqa: FBT001
    """The pod's own restart policy decides, not the job's."""
    assert runs.has_stopped(found) is expected


def a_run(pod_uid: str, count: int) -> runs.Run:
    return runs.Run(pod_uid=pod_uid, restart_count=count, started_at=SECOND, ended=True)


@pytest.mark.parametrize(
    ("read", "last", "oldest", "expected"),
    [
        (a_run("a", 0), a_run("a", 0), a_run("a", 1), False),
        (a_run("a", 0), a_run("a", 0), a_run("a", 2), True),
        (a_run("a", 3), a_run("a", 3), a_run("b", 0), False),
        (a_run("a", 3), a_run("a", 3), a_run("b", 1), True),
        (a_run("a", 0), None, a_run("b", 0), True),
        (a_run("a", 1), None, a_run("a", 1), False),
    ],
    ids=["the next run", "a later run", "the next pod", "a later run of it", "a pod half read", "the run half read"],
)
def test_something_was_written_unread_between_two_runs_that_do_not_follow_each_other(
    read: runs.Run, last: runs.Run | None, oldest: runs.Run, *, expected: bool
) -> None:
    """Restart counts show a run in between. For a new pod it matters whether the old one was read to its end."""
    assert parse.is_skipped(parse.start_of_run(read), last, oldest) is expected
