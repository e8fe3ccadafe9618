"""What a job's states on this machine say as events."""

from __future__ import annotations

from typing import Any

from ptjob_provider.core.local.events import events_of
from rows import each_row

JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "digits", "namespace": "team", "uid": "job"},
}


def at(second: int) -> str:
    """Return an instant."""
    return f"2026-11-22T10:00:{second:02}.000000Z"


def condition(kind: str, second: int, truth: str = "True") -> dict[str, Any]:
    """Return a condition as the operator writes it."""
    reason = f"PyTorchJob{kind}" if truth == "True" else "PyTorchJobResumed"
    return {"type": kind, "status": truth, "reason": reason, "message": kind.lower(), "lastTransitionTime": at(second)}


def pod(uid: str, *containers: dict[str, Any]) -> dict[str, Any]:
    """Return a pod of the job."""
    meta = {"name": "digits-master-0", "namespace": "team", "uid": uid, "creationTimestamp": at(1)}
    status = {"phase": "Running", "containerStatuses": list(containers)}
    return {"apiVersion": "v1", "metadata": meta, "status": status}


def container(restarts: int, state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the status of a pod's container."""
    return {"name": "pytorch", "restartCount": restarts, "state": state, "lastState": last or {}}


def ended(code: int, start: int, end: int) -> dict[str, Any]:
    """Return the state of a container that has ended."""
    reason = "Error" if code else "Completed"
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": at(start), "finishedAt": at(end)}}


def told(*states: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return second, reason and message of each event."""
    return [(event["lastTimestamp"][17:19], event["reason"], event["message"]) for event in events_of(JOB, states)]


def test_a_job_is_told_from_its_creation_to_its_end() -> None:
    """Each thing once, however many states show it."""
    running = {"running": {"startedAt": at(2)}}
    states = [
        {"status": {"conditions": [condition("Created", 0)]}, "pods": [pod("a")]},
        {"status": {"conditions": [condition("Created", 0)]}, "pods": [pod("a", container(0, running))]},
        {
            "status": {"conditions": [condition("Created", 0), condition("Succeeded", 5)]},
            "pods": [pod("a", container(0, ended(0, 2, 4)))],
        },
    ]

    assert told(*states) == [
        ("00", "PyTorchJobCreated", "created"),
        ("02", "Started", "Started container pytorch"),
        ("05", "PyTorchJobSucceeded", "succeeded"),
        ("04", "Completed", "Container pytorch ended with exit code 0"),
    ]


def test_a_container_that_is_started_again_is_told_with_each_end() -> None:
    """Also one that was never seen to run: its last state has when it did."""
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    states = [
        {"status": {}, "pods": [pod("a", container(0, waits, ended(3, 2, 4)))]},
        {"status": {}, "pods": [pod("a", container(1, {"running": {"startedAt": at(6)}}, ended(3, 2, 4)))]},
        {"status": {}, "pods": [pod("a", container(1, ended(4, 6, 8), ended(3, 2, 4)))]},
    ]

    assert told(*states) == [
        ("02", "Started", "Started container pytorch"),
        ("04", "Error", "Container pytorch ended with exit code 3"),
        ("06", "Started", "Started container pytorch"),
        ("08", "Error", "Container pytorch ended with exit code 4"),
    ]


@each_row(
    ("conditions", "reasons"),
    [
        ([condition("Suspended", 3)], [("Normal", "PyTorchJobSuspended")]),
        ([condition("Suspended", 3, "False")], [("Normal", "PyTorchJobResumed")]),
        ([condition("Running", 3, "False"), condition("Failed", 4)], [("Warning", "PyTorchJobFailed")]),
        ([condition("Restarting", 3)], [("Warning", "PyTorchJobRestarting")]),
        ([], []),
    ],
)
def test_what_is_wrong_is_a_warning(conditions: list[dict[str, Any]], reasons: list[tuple[str, str]]) -> None:
    """A condition that has ceased to be true is none, but for a job that goes on."""
    found = events_of(JOB, [{"status": {"conditions": conditions}}])

    assert [(event["type"], event["reason"]) for event in found] == reasons
    assert {event["involvedObject"]["kind"] for event in found} <= {"PyTorchJob"}


def test_a_container_that_has_not_begun_and_one_that_could_not_are_told_as_far_as_is_known() -> None:
    """An end without a beginning, and a wait that is no failure."""
    never = {"terminated": {"exitCode": 127, "finishedAt": at(2)}}
    state = {
        "status": {},
        "pods": [pod("a", container(0, never), container(0, {"waiting": {"reason": "ContainerCreating"}}))],
    }

    assert told(state, {}) == [("02", "Ended", "Container pytorch ended with exit code 127")]
