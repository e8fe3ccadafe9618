"""Tests of the job store of one machine: names, changes, time to live, and jobs whose supervisor died."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core.errors import InvalidSpec, JobAlreadyExists, UnsupportedByBackend
from ptjob_provider.core.local.backend import LocalBackend, created
from ptjob_provider.core.local.config import LocalConfig
from ptjob_provider.core.local.status import with_condition
from ptjob_provider.core.local.store import JobStore, is_expired, make_private, needs_recovery, read_json, recovered
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
RUNNING = {"running": {"startedAt": "2026-11-20T09:00:00Z"}}
DONE = {"terminated": {"exitCode": 0}}


def pod(phase: str, *states: dict[str, Any]) -> dict[str, Any]:
    containers = [{"name": f"c{number}", "state": state} for number, state in enumerate(states)]
    return {"metadata": {"name": "p"}, "status": {"phase": phase, "containerStatuses": containers}}


def status(*kinds: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in kinds:
        found = with_condition(found, kind, "", now=NOW)
    return found


@each_row(
    ("ttl", "condition", "seconds", "gone"),
    [
        (60, "Succeeded", 59, False),
        (60, "Succeeded", 61, True),
        (0, "Succeeded", 9, False),
        (0, "Succeeded", 11, True),
        (None, "Succeeded", 10**6, False),
        (60, "Failed", 61, True),
        (60, "Running", 61, False),
    ],
)
def test_a_time_to_live_counts_from_the_end(*, ttl: int | None, condition: str, seconds: int, gone: bool) -> None:
    """A job that has not ended stays, and one that has just ended, so that its followers see how it ended."""
    now = NOW + timedelta(seconds=seconds)

    assert is_expired({"spec": {"runPolicy": {"ttlSecondsAfterFinished": ttl}}}, status(condition), now) is gone
    assert not is_expired({"spec": {}}, status(condition), now)


@each_row(
    ("namespace", "name"),
    [("..", "j"), ("a/b", "j"), ("", "j"), ("x" * 64, "j"), ("ns", "../j"), ("ns", ""), ("ns", "J")],
)
def test_a_name_that_cannot_be_has_no_place(tmp_path: Path, namespace: str, name: str) -> None:
    """No name may lead out of the root."""
    with pytest.raises(InvalidSpec):
        JobStore(tmp_path).files(namespace, name)


@each_row(
    ("state", "needed"),
    [
        ({}, True),
        ({"status": status("Created", "Running"), "pods": [pod("Running", RUNNING)]}, True),
        ({"status": status("Succeeded"), "pods": [pod("Succeeded", DONE), pod("Running", RUNNING)]}, True),
        ({"status": status("Failed"), "pods": [pod("Pending")]}, True),
        ({"status": status("Succeeded"), "pods": [pod("Succeeded", DONE)]}, False),
        ({"status": status("Failed"), "pods": []}, False),
    ],
)
def test_a_supervisor_that_ended_by_itself_left_a_finished_job(state: dict[str, Any], needed: bool) -> None:  # noqa: FBT001
    assert needs_recovery(state) is needed


def test_a_finished_jobs_verdict_stays() -> None:
    """Only pods that ran have failed."""
    before = {"status": status("Succeeded"), "pods": [pod("Succeeded", DONE), pod("Running", RUNNING)]}

    found = recovered(before, NOW)

    assert found["status"] == before["status"]
    assert found["pods"][0] == before["pods"][0]
    assert found["pods"][1]["status"]["phase"] == "Failed"


JOB: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"namespace": "default", "name": "digits", "uid": "u"},
    "spec": {},
}


@each_row("rest", ["", '{"metadata": {'])
def test_a_folder_whose_object_was_lost_in_a_power_failure_takes_no_name(tmp_path: Path, rest: str) -> None:
    """Such a job is neither listed nor deleted by its name. A job with a supervisor keeps its name all the same."""
    files = JobStore(tmp_path).files("default", "digits")
    make_private(files.path)
    files.object.write_text(rest)

    with created(files, JOB, []):
        assert read_json(files.object) == JOB
        files.object.write_text(rest)
        with pytest.raises(JobAlreadyExists), created(files, JOB | {"metadata": JOB["metadata"] | {"uid": "v"}}, []):
            pass


def test_a_claim_without_annotations_is_refused_with_what_watches_it(tmp_path: Path) -> None:
    """A claim of one machine is a directory."""
    backend = LocalBackend(LocalConfig(root=tmp_path))

    with pytest.raises(UnsupportedByBackend, match=rf"use DataArrivalTrigger\('{tmp_path}/claims/team/data'\)"):
        backend.watch_claim("team", "data")
