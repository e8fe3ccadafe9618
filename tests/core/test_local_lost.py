from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.local.objects import ended, needs_settling
from ptjob_provider.core.local.operator import with_condition
from rows import each_row

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
LATER = "2026-11-20T10:00:00.000000Z"


def container(name: str, state: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "restartCount": 0, "ready": True, "started": True, "state": state, "lastState": {}}


def pod(phase: str, *states: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "p"},
        "status": {"phase": phase, "containerStatuses": [container(f"c{n}", state) for n, state in enumerate(states)]},
    }


RUNNING = {"running": {"startedAt": "2026-11-20T09:00:00Z"}}
DONE = {"terminated": {"exitCode": 0}}


def status(*kinds: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in kinds:
        found = with_condition(found, kind, "", now=NOW)
    return found


@each_row(
    ("state", "needed"),
    [
        ({}, True),
        ({"status": status("Created", "Running"), "pods": [pod("Running", RUNNING)]}, True),
        ({"status": status("Succeeded"), "pods": [pod("Succeeded", DONE), pod("Running", RUNNING)]}, True),
        ({"status": status("Succeeded"), "pods": [pod("Succeeded", DONE)]}, False),
        ({"status": status("Failed"), "pods": []}, False),
    ],
)
def test_a_supervisor_that_ended_by_itself_left_a_finished_job(state: dict[str, Any], needed: bool) -> None:  # noqa: FBT001
    """And nothing that runs; anything else was its death."""
    assert needs_settling(state) is needed


def test_a_job_without_its_supervisor_has_failed_with_a_reason_of_its_own() -> None:
    """What ran is told as the kubelet tells what it lost."""
    found = ended({"status": status("Created", "Running"), "pods": [pod("Running", RUNNING, DONE)]}, NOW)

    (lost,) = [one for one in found["status"]["conditions"] if one["type"] == "Failed"]
    first, second = found["pods"][0]["status"]["containerStatuses"]
    assert (lost["reason"], found["status"]["completionTime"]) == ("SupervisorLost", LATER)
    assert found["pods"][0]["status"]["phase"] == "Failed"
    assert first["state"]["terminated"]["exitCode"] == 137
    assert first["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert (first["state"]["terminated"]["startedAt"], first["ready"]) == ("2026-11-20T09:00:00Z", False)
    assert second["state"] == DONE


def test_a_finished_jobs_verdict_stays() -> None:
    """Only what still ran is ended."""
    before = {"status": status("Succeeded"), "pods": [pod("Succeeded", DONE), pod("Running", RUNNING)]}

    found = ended(before, NOW)

    assert found["status"] == before["status"]
    assert found["pods"][0] == before["pods"][0]
    assert "terminated" in found["pods"][1]["status"]["containerStatuses"][0]["state"]


def test_a_job_that_was_never_supervised_has_failed() -> None:
    """Its submission was interrupted."""
    found = ended({}, NOW)

    job = {"metadata": {"name": "j"}, "status": found["status"]}
    assert PYTORCHJOB.read_status(job).reason == "SupervisorLost"
    assert found["pods"] == []
