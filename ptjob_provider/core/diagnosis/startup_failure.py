"""Diagnose pods that do not start: what blocks them, and whether a retry would be blocked again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ptjob_provider.core.diagnosis.causes import CAUSES, Cause, Diagnosis, named, while_it_is_there
from ptjob_provider.core.diagnosis.last_lines import clip, runtime_error
from ptjob_provider.core.history import WaitKind, is_program_missing
from ptjob_provider.core.history.pods import NOT_TAKEN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.history import Waiting

WAITS_FOR_MASTER = "init-pytorch"
"""Name of the operator's init container in every worker; it fails if the master has no address after 100 lookups."""

_IMAGE_REASONS = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
_IMAGE_GONE = re.compile(
    r"not found|denied|unauthorized|authentication required|manifest unknown|no match for platform|invalid|never",
    re.IGNORECASE,
)
_INFORMATIVE = {WaitKind.BROKEN, WaitKind.STUCK, WaitKind.REFUSED, WaitKind.FORBIDDEN, WaitKind.QUEUED}
_NO_CLAIM = re.compile(r'persistentvolumeclaim "[^"]*" not found')
_UNBOUND = re.compile(r"unbound (?:immediate )?PersistentVolumeClaims")
_PULL_REFUSED = re.compile(r"denied|unauthorized|authentication required|authorization", re.IGNORECASE)
_MISSING = re.compile(r"not found|no PriorityClass")
_CAUSES = {
    WaitKind.INIT: Cause.INIT,
    WaitKind.STUCK: Cause.CANNOT_START,
    WaitKind.QUEUED: Cause.UNSCHEDULABLE,
    WaitKind.REFUSED: Cause.QUOTA,
}


def not_started(waits: Sequence[Waiting], did: str, ranks: Mapping[str, int]) -> Diagnosis:
    """Diagnose pods that did not start, by the most informative of their waits; the summary counts the others."""
    wait = min(waits, key=lambda wait: (wait.kind is not WaitKind.STUCK, ranks.get(wait.replica, len(ranks))))
    others = len({wait.replica for wait in waits}) - 1
    more = f" (and {others} more)" if others else ""
    reason = f"init container {wait.container} still runs" if wait.kind is WaitKind.INIT else wait.reason
    message = f": {runtime_error(wait.message)}" if wait.message else ""
    summary = f"{named(wait.replica, ranks)}{more} {did}: {wait.in_vain or f'{reason}{message}'}"
    return _diagnosis(wait, summary)


def not_placed(wait: Waiting, did: str, ranks: Mapping[str, int]) -> Diagnosis:
    """Diagnose the wait of a pod that was not created, or that has no node."""
    who = named(wait.replica, ranks) or "a replica"
    return _diagnosis(wait, f"{who} {did}: {wait.in_vain or clip(wait.message) or wait.reason}")


def advice_on(waits: Sequence[Waiting]) -> str:
    """Return advice for a job whose pods wait like this; "" if no action seems to be needed."""
    specific = [
        wait for wait in waits if wait.kind in _INFORMATIVE and (wait.kind is not WaitKind.QUEUED or _is_specific(wait))
    ]
    wait = min(specific, key=lambda wait: wait.kind is not WaitKind.STUCK, default=None)
    return while_it_is_there(_advice(_cause_of(wait), wait)[0]) if wait else ""


def _is_specific(wait: Waiting) -> bool:
    """Return whether a pod without a node waits for a reason that a person can remove."""
    return _cause_of(wait) is not Cause.UNSCHEDULABLE or "Insufficient" in wait.message or NOT_TAKEN in wait.message


def _diagnosis(wait: Waiting, summary: str) -> Diagnosis:
    cause = _cause_of(wait)
    resolution, retryable = _advice(cause, wait)
    return Diagnosis.of(cause, summary, resolution=resolution, retryable=retryable, replica=wait.replica)


def _cause_of(wait: Waiting) -> Cause:
    if wait.kind is WaitKind.FORBIDDEN:
        return Cause.CONFIG if _MISSING.search(wait.message) else Cause.FORBIDDEN
    if wait.reason in _IMAGE_REASONS:
        return Cause.IMAGE
    if wait.reason == "CreateContainerConfigError" or _NO_CLAIM.search(wait.message):
        return Cause.CONFIG
    if wait.reason in {"FailedMount", "FailedAttachVolume"} or _UNBOUND.search(wait.message):
        return Cause.MOUNT
    if wait.kind is WaitKind.BROKEN or is_program_missing(wait.reason, wait.message):
        return Cause.PROGRAM_MISSING
    return _CAUSES.get(wait.kind, Cause.START_TIMEOUT)


def is_image_gone(reason: str, message: str) -> bool:
    """Return whether a container waits for an image that no retry can pull, such as a missing image."""
    return reason in _IMAGE_REASONS and bool(_IMAGE_GONE.search(message))


def _advice(cause: Cause, wait: Waiting) -> tuple[str, bool]:
    if cause is Cause.IMAGE and _IMAGE_GONE.search(wait.message):
        what = "name, or give it a valid pull secret" if _PULL_REFUSED.search(wait.message) else "name or tag"
        return f"Correct the image's {what}; a retry would fail the same way", False
    if cause is Cause.FORBIDDEN and f'(container "{WAITS_FOR_MASTER}" must' in wait.message:
        advice = "Have the operator's init container template fit the namespace; a retry would fail the same way"
        return advice, False
    if cause is Cause.MOUNT and "not found" in wait.message:
        return "Create what is mounted or correct its name; a retry would fail the same way", False
    if NOT_TAKEN in wait.message:
        return "See whether that scheduler runs, or leave scheduler_name (--scheduler) out; a retry waits again", True
    if wait.in_vain:
        return "Ask for less or raise the quota; a retry would fail the same way", False
    return CAUSES[cause].advice, CAUSES[cause].retryable
