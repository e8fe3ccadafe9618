"""Interpret the probe pod: the report in its log, or the obstacle and what to do. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ptjob_provider.core.diagnosis import Cause, tail
from ptjob_provider.core.diagnosis.finding import find
from ptjob_provider.core.diagnosis.held_up import is_image_gone
from ptjob_provider.core.errors import JobNotFound, PermissionDenied
from ptjob_provider.core.kubernetes.probe_pod import CONTAINER, MARKER, RESOURCES
from ptjob_provider.core.outputs import OutputReport
from ptjob_provider.core.recorder import Record, WaitKind, observe
from ptjob_provider.core.recorder.pods import read_pod, wait_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.diagnosis.finding import Finding
    from ptjob_provider.core.errors import PTJobError
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.recorder.pods import Wait

ASKS_FOR = "{cpu} CPU and {memory}".format_map(RESOURCES["requests"])

_OTHER_IMAGE = "set `[ptjob] probe_image` to an image that has Python 3 and that the nodes can pull"
_IMAGE_WORDS = ("Image", "Registry", "Pull")
_WAITS: Mapping[WaitKind, str] = {
    WaitKind.QUEUED: f"free {ASKS_FOR} on a node that can mount the claim and that the job's node selection allows",
    WaitKind.STUCK: "see the pod's events; its security context, service account and claims are those of rank 0",
    WaitKind.STARTING: "see whether its volumes can be mounted, or raise `[ptjob] probe_timeout`",
    WaitKind.PULLING: "raise `[ptjob] probe_timeout`, or set `[ptjob] probe_image` to a smaller image with Python 3",
}
_ENDS: Mapping[Cause, str] = {
    Cause.PROGRAM_MISSING: f"the image has no Python there: {_OTHER_IMAGE}",
    Cause.PYTHON_EXCEPTION: f"the image's Python may be older than 3.6 or broken: {_OTHER_IMAGE}",
    Cause.OUT_OF_MEMORY: f"it may use {RESOURCES['limits']['memory']}: see how many files the output has",
}
_ERRORS: Mapping[str, str] = {
    "PermissionError": "see that the user as whom rank 0 runs may read its claims",
    "OSError": "see whether the volume's storage is well",
}


def is_over(pod: Manifest) -> bool:
    """Return whether the pod has ended, or will never start."""
    return read_pod(pod, CONTAINER).is_over or never_starts(pod)


def never_starts(pod: Manifest) -> bool:
    """Return whether waiting for one of our pods is pointless: its program or its image is missing."""
    wait = wait_of(read_pod(pod, CONTAINER), ())
    return wait is not None and (wait.kind is WaitKind.BROKEN or is_image_gone(wait.reason, wait.message))


def read_report(log: str) -> OutputReport | None:
    """Parse the report that the pod wrote; None if it is missing or incomplete."""
    line = next((line for line in reversed(log.split("\n")) if line.startswith(MARKER)), "")
    try:
        return OutputReport.from_dict(json.loads(line.removeprefix(MARKER)))
    except (ValueError, TypeError, AttributeError):
        return None


def obstacle(pod: Manifest, events: Sequence[Manifest] = ()) -> str:
    """Return why the pod has not answered, as a clause, and what to do next."""
    read = read_pod(pod, CONTAINER)
    wait = wait_of(read, events)
    if wait:
        return f"{seen(pod, events)}; {_wait_advice(wait)}"
    if not read.is_over:
        return "was still reading; raise `[ptjob] probe_timeout`"
    if read.phase == "Succeeded":
        return "has ended, but there is no report in its log; see what else writes there"
    return f"{seen(pod)}; {_end_advice(_finding(pod))}"


def seen(pod: Manifest, events: Sequence[Manifest] = ()) -> str:
    """Return the problem of one of our pods, of any kind, as a clause; "" for none."""
    read = read_pod(pod, CONTAINER)
    wait = wait_of(read, events)
    if wait:
        return f"does not run ({_said(wait)})"
    if not read.is_over or read.phase == "Succeeded":
        return ""
    found = _finding(pod)
    return f"{found.did}: {found.detail}" if found.detail else found.did


def advice(error: PTJobError) -> str:
    """Return what to do about a refusal of the API server."""
    if isinstance(error, PermissionDenied):
        return "let these credentials do that, and the namespace admit a pod with rank 0's security context"
    if isinstance(error, JobNotFound):
        return "see whether somebody has deleted it"
    return "see whether the API server is well" if error.retryable else "correct what it names"


def _said(wait: Wait) -> str:
    message = tail.runtime_error(wait.message)
    return f"{wait.reason}: {message}" if message else wait.reason


def _wait_advice(wait: Wait) -> str:
    if any(word in wait.reason for word in _IMAGE_WORDS):
        return _OTHER_IMAGE
    return _WAITS.get(wait.kind, _WAITS[WaitKind.STUCK])


def _end_advice(found: Finding) -> str:
    exception, _, _ = found.detail.partition(":")
    return _ERRORS.get(exception) or _ENDS.get(found.cause, "see whether its node is well")


def _finding(pod: Manifest) -> Finding:
    record = observe(Record(), pods=[pod], now=datetime.now(UTC), container=CONTAINER)
    end = record.terminations[-1]  # a pod that failed has at least its own
    return find(end, tail.lines_of(end.message))
