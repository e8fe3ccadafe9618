"""A job by its name alone, whatever kind it is of: names are all that people and sensors know."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, JobNotFound, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest

logger = logging.getLogger(__name__)


async def find_job(backend: Backend, namespace: str, name: str, *, kind: str | None = None) -> Manifest:
    """Return the job of this name: of the kind, or of the first kind that has one.

    Raises:
        JobNotFound: there is none; the text says which kinds were looked for, and which may not be looked at.
        PermissionDenied: of the one kind that is asked for, or of every kind that is served.
        InvalidSpec: no such kind is known here.
    """
    if kind is not None:
        return await backend.get(kinds.named(kind).KIND, namespace, name)
    missing: dict[str, ClusterError] = {}
    denied: list[PermissionDenied] = []
    for each in kinds.KINDS:
        try:
            return await backend.get(each, namespace, name)
        except PermissionDenied as error:
            denied.append(error)
        except ClusterError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            missing[each] = error
    served = [each for each, error in missing.items() if isinstance(error, JobNotFound)]
    if denied and not served:
        raise denied[0]
    if not served:
        raise JobNotFound("; ".join(map(str, missing.values())), code=404, reason="NotFound")
    unseen = f"; not looked at: {'; '.join(map(str, denied))}" if denied else ""
    text = f"{namespace} has no job {name} (looked for {', '.join(served)}){unseen}"
    raise JobNotFound(text, code=404, reason="NotFound") from missing[served[0]]


async def list_jobs(
    backend: Backend, namespace: str, labels: Mapping[str, str], *, kind: str | None = None
) -> list[Manifest]:
    """Return the jobs that carry all these labels, of the kind or of all kinds, oldest first.

    Raises:
        PermissionDenied: of the one kind that is asked for, or of every kind; one that may be listed is enough.
        InvalidSpec: no such kind is known here.
    """
    if kind is not None:
        return list(await backend.list(kinds.named(kind).KIND, namespace, labels))
    found: list[Manifest] = []
    refused: list[ClusterError] = []
    for each in kinds.KINDS:
        try:
            found += await backend.list(each, namespace, labels)
        except ClusterError as error:
            if error.code not in {HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN} or error.retryable:
                raise
            logger.debug("%s: jobs of kind %s are left out: %s", namespace, each, error)
            refused.append(error)
    if len(refused) == len(kinds.KINDS):
        raise next((error for error in refused if isinstance(error, PermissionDenied)), refused[0])
    return sorted(found, key=lambda job: str(job["metadata"]["creationTimestamp"]))
