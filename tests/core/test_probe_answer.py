from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ptjob_provider.core.kubernetes.probe import ProbeOptions, clock_difference, obstacle
from ptjob_provider.core.outputs.contract import OutputReport
from rows import each_row

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp()
PLACED = {"type": "PodScheduled", "status": "True"}
MISSED = 'runc create failed: unable to start container process: exec: "python3": executable file not found in $PATH'


def pod(phase: str, *, condition: dict[str, str] | None = None, **state: Any) -> dict[str, Any]:
    """Return a pod whose container is in this state; without a state the kubelet has not reported one yet."""
    statuses = [{"name": "probe", "restartCount": 0, "state": state}] if state else []
    status = {"phase": phase, "conditions": [condition or PLACED], "containerStatuses": statuses}
    spec = {"containers": [{"name": "probe"}], "nodeName": "node-a"}
    return {"metadata": {"name": "digits-outputs-1", "uid": "u-1"}, "spec": spec, "status": status}


def unplaced(message: str) -> dict[str, Any]:
    found = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod("Pending", condition=found)


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return pod("Pending", waiting={"reason": reason, "message": message})


def ended(code: int, reason: str, message: str = "") -> dict[str, Any]:
    return pod("Failed", terminated={"exitCode": code, "reason": reason, "message": message})


def raised(error: str) -> str:
    """Return the end of the log of a probe that raised."""
    return f'\nptjob-outputs Traceback (most recent call last):\n  File "probe.py", line 1\n{error}\n'


def event(reason: str, message: str) -> dict[str, Any]:
    return {"reason": reason, "message": message, "involvedObject": {"name": "digits-outputs-1", "uid": "u-1"}}


@each_row(
    ("found", "said"),
    [
        (
            unplaced("0/1 nodes are available: 1 node(s) had untolerated taint. preemption: none"),
            "does not run (Unschedulable: 0/1 nodes are available: 1 node(s) had untolerated taint.)",
        ),
        (waiting("ImagePullBackOff", "no such host"), "does not run (ImagePullBackOff: no such host)"),
        (
            waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
            "image will run as root",
        ),
        (waiting("ContainerCreating"), "does not run (ContainerCreating)"),
        (pod("Running", running={}), "was still reading"),
        (pod("Succeeded", terminated={"exitCode": 0}), "has ended, but there is no report in its log"),
        (ended(128, "StartError", MISSED), 'exec: "python3": executable file not found in $PATH'),
        (ended(1, "Error", raised("PermissionError: [Errno 13] b'/data'")), "PermissionError: [Errno 13] b'/data'"),
        (ended(137, "OOMKilled"), "ran out of memory (OOMKilled, exit code 137)"),
        (ended(143, "Error"), "was stopped by SIGTERM (exit code 143)"),
    ],
)
def test_the_obstacle_of_a_probe_is_named_with_what_it_needs(found: dict[str, Any], said: str) -> None:
    """One clause about the pod in the words of scheduler, kubelet or Python."""
    clause, _, needs = obstacle(found, (), options=ProbeOptions()).partition("; it asks for ")

    assert said in clause
    assert needs.startswith("100m CPU and 128Mi on a node")


def test_a_volume_that_cannot_be_mounted_is_read_from_the_pods_events() -> None:
    """The pod itself only has ContainerCreating."""
    events = [event("FailedAttachVolume", 'Multi-Attach error for volume "pvc-1"')]

    said = obstacle(waiting("ContainerCreating"), events, options=ProbeOptions())
    assert 'FailedAttachVolume: Multi-Attach error for volume "pvc-1"' in said


def test_the_options_of_a_probe_are_named_as_the_user_sets_them() -> None:
    """A step of a pipeline has them as variables."""
    said = obstacle({}, (), options=ProbeOptions(title=lambda option: f"PTJOB_{option.upper()}"))

    assert said.startswith("was not created yet; ")
    assert "`PTJOB_PROBE_IMAGE` names an image with Python 3" in said
    assert "`PTJOB_PROBE_TIMEOUT` gives it longer than 300 s" in said


@each_row(
    ("clock", "off"),
    [
        (None, ""),
        (NOON, ""),
        (NOON + 5.9, ""),
        (NOON - 30, "showed -30 s after a pod"),
        (NOON + 7, "showed +7 s after a pod"),
    ],
)
def test_a_node_with_another_time_than_the_api_server_is_reported(clock: float | None, off: str) -> None:
    """Between the creation and the answer, 5 s later; creation times are in whole seconds."""
    pod = {"metadata": {"creationTimestamp": "2026-11-20T12:00:00Z"}}

    said = clock_difference(OutputReport(clock=clock), pod, seconds=5)

    assert off in said
    assert bool(said) == bool(off)
