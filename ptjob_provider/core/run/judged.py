"""Delete a job that this package judges to be over, after the server has shown that it is.

Whatever such a judgement is based on may be old: a watch may be refused or delayed, this process may have been frozen,
and the job may have ended meanwhile. A deletion that a person has ordered needs no judgement: `Backend.delete`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import JobChanged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ptjob_provider.core.backend import Backend, Observation
    from ptjob_provider.core.identity import JobRef

_CONFLICTS = 3
"""Number of versions of a job that changed under one judgement, after which any version is deleted: operators write a
status whenever they reconcile."""


async def delete_judged(backend: Backend, ref: JobRef, judge: Callable[[Observation], Awaitable[str]]) -> bool:
    """Delete the job if `judge` still demands it of what the server has now; return whether it was deleted.

    Every deletion that this package decides by itself is made here. The job is deleted only in the version that was
    judged.

    Args:
        backend: the back-end.
        ref: the job.
        judge: takes the job and its pods, and returns why the job must be deleted; "" keeps it.

    Raises:
        PTJobError: a request was refused or not answered; the job was kept.
    """
    changed: Counter[str] = Counter()
    while True:
        observation = await backend.read(ref)
        why = await judge(observation)
        if not why or observation.job is None:
            return False
        version = observation.job["metadata"].get("resourceVersion") if changed[why] < _CONFLICTS else None
        try:
            await backend.delete(ref, version=version)
        except JobChanged:
            if version is None:
                raise
            changed[why] += 1
        else:
            return True
