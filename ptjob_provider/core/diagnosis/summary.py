"""Describe a job's state in a few words, for a list of jobs: why it waits, or why it failed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ptjob_provider.core.containment import contained
from ptjob_provider.core.diagnosis.causes import CAUSES, Cause, Diagnosis
from ptjob_provider.core.diagnosis.last_lines import clip
from ptjob_provider.core.diagnosis.root_cause import candidates_of, diagnose, failed_replicas, root_of
from ptjob_provider.core.history import WaitKind
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.diagnosis.root_cause import Candidate
    from ptjob_provider.core.history import PodHistory, Waiting
    from ptjob_provider.core.status import JobStatus

_LONGEST = 40
"""Maximum characters of the text; leaves room for the other columns of a terminal."""

_MISSING = re.compile(r'(?i:\b(secret|configmap|serviceaccount|persistentvolumeclaim)s? "([^"]+)" not found)')
_QUOTA = re.compile(r"exceeded quota: ([\w.-]+)")
_TOO_SMALL = re.compile(r"the quota ([\w.-]+) (?:is smaller than|allows) ")
_LACKS = re.compile(r"Insufficient ([\w./-]*\w)")
_EXIT_CODE = re.compile(r"exited with code (\d+)")
_BECAUSE = re.compile(r"^.* because ")
_COUNT_ALONE = re.compile(r"replica\(s\) failed|^jobset failed due to one or more job failures")
"""Operators' messages that only name a role or a batch Job, which is often not the one that failed first."""
_NOT_HERE = "see ptjob get"
"""Shown if the job's object does not name the cause: lists read only this object, `ptjob get` reads pods and events."""
_OF_THE_PROGRAM = {Cause.PYTHON_EXCEPTION, Cause.EXIT_CODE, Cause.CRASH_LOOP}
_HELD = {WaitKind.BROKEN, WaitKind.STUCK, WaitKind.QUEUED, WaitKind.REFUSED, WaitKind.FORBIDDEN}
_SHORT = {"persistentvolumeclaim": "claim", "serviceaccount": "service account"}


@contained(lambda *_: _NOT_HERE)
def in_brief(
    job: str, history: PodHistory, status: JobStatus, noted: Diagnosis | None, *, ranks: Mapping[str, int]
) -> str:
    """Return why a job waits or has failed, in at most 40 characters; "" if it does neither or the reason is unknown.

    A recorded wait may be out of date, so it is shown for pending jobs only.

    Args:
        job: the job's name, with which the names of its replicas begin.
        history: the history of its pods.
        status: its status.
        noted: the diagnosis annotated on the job; None if there is none.
        ranks: pod name → rank.
    """
    text = ""
    if status.phase is JobPhase.FAILED:
        text = _failure(job, status, noted or diagnose(history, status, ranks=ranks))
    elif status.phase is JobPhase.SUSPENDED:
        text = history.queue
    elif status.phase is JobPhase.SUCCEEDED:
        text = _failed_in_brief(job, history, ranks)
    elif status.phase is JobPhase.PENDING and history.waiting:
        text = _wait(min(history.waiting, key=lambda wait: (not _subject(wait.message), wait.kind not in _HELD)))
    return clip(text or _ended_so_far(job, history, status, ranks), _LONGEST)


def blocked_waits(history: PodHistory) -> frozenset[tuple[str, str]]:
    """Return (replica, reason) for each wait that is not part of a normal start and may never end."""
    return frozenset((wait.replica, wait.reason) for wait in history.waiting if wait.kind in _HELD)


def _failure(job: str, status: JobStatus, why: Diagnosis) -> str:
    if why.cause is Cause.UNKNOWN and _COUNT_ALONE.search(status.message):
        return _NOT_HERE
    if why.cause is Cause.UNKNOWN:
        return _BECAUSE.sub("", status.message.rstrip(".")) or status.reason
    code = _EXIT_CODE.search(why.summary)
    word = _subject(why.summary) or _word(why.cause, code[1] if code else None, why.exception)
    is_of_replica = why.replica and not CAUSES[why.cause].of_whole_job
    return f"{why.replica.removeprefix(f'{job}-')}: {word}" if is_of_replica else word


def _failed_in_brief(job: str, history: PodHistory, ranks: Mapping[str, int]) -> str:
    failed = failed_replicas(history, ranks=ranks)
    texts = [
        f"{each['replica'].removeprefix(f'{job}-')}: {_word(Cause(each['cause']), each['exit_code'])}"
        for each in failed
    ]
    return f"{texts[0]}{f' (and {len(texts) - 1} more)' if texts[1:] else ''}" if texts else ""


def _wait(wait: Waiting) -> str:
    if wait.kind is WaitKind.INIT:
        return f"init container {wait.container}"
    if wait.kind is WaitKind.CRASH_LOOP:  # the number of restarts, which is shown instead, is more informative
        return ""
    return _subject(wait.in_vain or wait.message) or wait.reason


def _ended_so_far(job: str, history: PodHistory, status: JobStatus, ranks: Mapping[str, int]) -> str:
    """Return the number of container restarts and their cause; without restarts, the replica that failed and why."""
    if status.phase.is_terminal:
        return ""
    candidates = candidates_of(history)
    root = root_of(history, candidates, ranks)
    if not history.restarts:
        is_shown = root is not None and status.phase is not JobPhase.SUSPENDED
        return f"{root.end.replica.removeprefix(f'{job}-')}: {_end(root)}" if root and is_shown else ""
    count = f"{history.restarts} restart{'' if history.restarts == 1 else 's'}"
    shown = root or next(reversed(candidates), None)
    return f"{count}: {_end(shown)}" if shown else count


def _end(candidate: Candidate) -> str:
    return _word(candidate.classified.cause, candidate.end.exit_code, candidate.classified.exception)


def _subject(message: str) -> str:
    """Return the object or resource that a message says is missing, such as `claim datasets not found`; "" for none."""
    if missing := _MISSING.search(message):
        kind = missing[1].lower()
        return f"{_SHORT.get(kind, kind)} {missing[2]} not found"
    if quota := _TOO_SMALL.search(message):
        return f"quota {quota[1]} too small"
    if quota := _QUOTA.search(message):
        return f"quota {quota[1]} exceeded"
    lacks = _LACKS.search(message)
    return f"insufficient {lacks[1]}" if lacks else ""


def _word(cause: Cause, code: object, exception: str = "") -> str:
    if cause in _OF_THE_PROGRAM and exception:
        return exception.rpartition(".")[2]
    if cause in _OF_THE_PROGRAM and code is not None:
        return f"exit code {code}"
    return CAUSES[cause].in_brief or cause.value.replace("_", " ")
