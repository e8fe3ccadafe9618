"""Find jobs of any kind by name or labels; people and sensors know a job's name, but not its kind."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, JobNotFound, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest

logger = logging.getLogger(__name__)


async def find_job(
    backend: Backend, namespace: str, name: str, *, kind: str | None = None, preferred: str | None = None
) -> Manifest:
    """Return the job of this name and kind; without `kind`, of the first kind that has such a job, `preferred` first.

    Raises:
        JobNotFound: no job has the name; the text lists the kinds that were searched and those that were forbidden.
        PermissionDenied: the requested kind, or every kind that the cluster serves, is forbidden.
        InvalidSpec: the kind is unknown.
    """
    if kind is not None:
        with _telling_unserved(kind):
            return await backend.get(kinds.named(kind).KIND, namespace, name)
    missing: dict[str, ClusterError] = {}
    denied: list[PermissionDenied] = []
    for each in kinds.in_order(preferred):
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
    skipped = f"; not looked at: {'; '.join(map(str, denied))}" if denied else ""
    text = f"{namespace} has no job {name} (looked for {', '.join(served)}){skipped}"
    raise JobNotFound(text, code=404, reason="NotFound") from missing[served[0]]


async def list_jobs(
    backend: Backend, namespace: str, labels: Mapping[str, str], *, kind: str | None = None
) -> list[Manifest]:
    """Return the jobs that have all these labels, oldest first; without `kind`, of all kinds that are readable.

    Raises:
        PermissionDenied: the requested kind is forbidden, or no kind is readable.
        InvalidSpec: the kind is unknown.
    """
    if kind is not None:
        with _telling_unserved(kind):
            return list(await backend.list(kinds.named(kind).KIND, namespace, labels))
    jobs: list[Manifest] = []
    refused: list[ClusterError] = []
    for each in kinds.KINDS:
        try:
            jobs += await backend.list(each, namespace, labels)
        except ClusterError as error:
            if error.code not in {HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN} or error.retryable:
                raise
            logger.debug("%s: jobs of kind %s are left out: %s", namespace, each, error)
            refused.append(error)
    if len(refused) == len(kinds.KINDS):
        raise next((error for error in refused if isinstance(error, PermissionDenied)), refused[0])
    return sorted(jobs, key=lambda job: str(job["metadata"]["creationTimestamp"]))


@contextmanager
def _telling_unserved(kind: str) -> Iterator[None]:
    """Say that the kind is not served where the server answers 404 for the kind, not for the job."""
    try:
        yield
    except ClusterError as error:
        if error.code != HTTPStatus.NOT_FOUND or isinstance(error, JobNotFound) or error.retryable:
            raise
        raise ClusterError(f"the cluster does not serve {kind} ({error})", code=error.code) from error
