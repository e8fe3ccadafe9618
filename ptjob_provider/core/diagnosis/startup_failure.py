"""Diagnose pods that do not start: the obstacle, and whether a retry would meet it again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ptjob_provider.core.diagnosis.causes import ADVICE, Cause, Diagnosis, named, while_it_is_there
from ptjob_provider.core.diagnosis.last_lines import clip, runtime_error
from ptjob_provider.core.history import WaitKind, is_program_missing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.history import Waiting

WAITS_FOR_MASTER = "init-pytorch"
"""The operator's init container of every worker; it exits with 1 when the master has no address after 100 lookups."""

_IMAGE_REASONS = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
_IMAGE_GONE = re.compile(
    r"not found|denied|unauthorized|authentication required|manifest unknown|no match for platform|invalid|never",
    re.IGNORECASE,
)
_TELLING = {WaitKind.BROKEN, WaitKind.STUCK, WaitKind.REFUSED, WaitKind.FORBIDDEN, WaitKind.QUEUED}
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


def held_up(waits: Sequence[Waiting], did: str, ranks: Mapping[str, int]) -> Diagnosis:
    """Diagnose the most informative wait; the others are counted."""
    wait = min(waits, key=lambda one: (one.kind is not WaitKind.STUCK, ranks.get(one.replica, len(ranks))))
    others = len({one.replica for one in waits}) - 1
    more = f" (and {others} more)" if others else ""
    reason = f"init container {wait.container} still runs" if wait.kind is WaitKind.INIT else wait.reason
    message = f": {runtime_error(wait.message)}" if wait.message else ""
    summary = f"{named(wait.replica, ranks)}{more} {did}: {wait.in_vain or f'{reason}{message}'}"
    return _diagnosis(wait, summary)


def without_place(wait: Waiting, did: str, ranks: Mapping[str, int]) -> Diagnosis:
    """Diagnose the wait of one pod that was not created, or that fits on no node."""
    who = named(wait.replica, ranks) or "a replica"
    return _diagnosis(wait, f"{who} {did}: {wait.in_vain or clip(wait.message) or wait.reason}")


def advice_on(waits: Sequence[Waiting]) -> str:
    """Return the advice while these waits last; "" if no action is known to be needed."""
    specific = [one for one in waits if one.kind in _TELLING and (one.kind is not WaitKind.QUEUED or _is_telling(one))]
    wait = min(specific, key=lambda one: one.kind is not WaitKind.STUCK, default=None)
    return while_it_is_there(_advice(_cause_of(wait), wait)[0]) if wait else ""


def _is_telling(wait: Waiting) -> bool:
    """Return whether a pod without a node has a specific reason."""
    return _cause_of(wait) is not Cause.UNSCHEDULABLE or "Insufficient" in wait.message


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
    """Return whether a container waits for an image that no retry can pull, such as a missing one."""
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
    if wait.in_vain:
        return "Ask for less or raise the quota; a retry would fail the same way", False
    return ADVICE[cause]
