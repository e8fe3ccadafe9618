"""Find jobs of any kind by name or labels; people and sensors know a job's name, but not its kind."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, JobNotFound, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest

logger = logging.getLogger(__name__)


async def find_job(
    backend: Backend, namespace: str, name: str, *, kind: str | None = None, preferred: str | None = None
) -> Manifest:
    """Return the job of this name and kind; without `kind`, of the first kind that has such a job, `preferred` first.

    Raises:
        JobNotFound: no job has the name; the text lists the kinds that were searched and those that were forbidden.
        PermissionDenied: the requested kind, or every kind that the cluster serves, is forbidden, or the credential is
            refused.
        InvalidSpec: the kind is unknown.
    """
    if kind is not None:
        return await backend.get(kinds.named(kind).KIND, namespace, name)
    left_out: dict[str, ClusterError] = {}
    for each in kinds.in_order(preferred):
        try:
            return await backend.get(each, namespace, name)
        except ClusterError as error:
            if not _is_about_kind(error):
                raise
            left_out[each] = error
    denied = [error for error in left_out.values() if isinstance(error, PermissionDenied)]
    served = [each for each, error in left_out.items() if isinstance(error, JobNotFound)]
    if denied and not served:
        raise denied[0]
    if not served:
        raise JobNotFound("; ".join(map(str, left_out.values())), code=404, reason="NotFound")
    skipped = f"; not looked at: {'; '.join(map(str, denied))}" if denied else ""
    text = f"{namespace} has no job {name} (looked for {', '.join(served)}){skipped}"
    raise JobNotFound(text, code=404, reason="NotFound") from left_out[served[0]]


async def list_jobs(
    backend: Backend,
    namespace: str,
    labels: Mapping[str, str],
    *,
    kind: str | None = None,
    own: Sequence[str] = (),
    seen: Collection[str] = (),
) -> list[Manifest]:
    """Return the jobs that have all these labels, oldest first; without `kind`, of all kinds that are readable.

    Args:
        backend: the back-end.
        namespace: the jobs' namespace.
        labels: the jobs' labels.
        kind: the only kind to list.
        own: the kinds as one of which the caller creates its job, in the order in which it tries them. Of the first one
            that the cluster serves, a refusal does not mean that there are no jobs.
        seen: the kinds of which the caller has seen jobs; the same holds for each of them.

    Raises:
        PermissionDenied: the requested kind, the caller's own kind or a seen one is forbidden, or no kind is readable.
        InvalidSpec: the kind is unknown.
    """
    if kind is not None:
        return list(await backend.list(kinds.named(kind).KIND, namespace, labels))
    jobs: list[Manifest] = []
    refused: dict[str, ClusterError] = {}
    for each in dict.fromkeys((*own, *kinds.KINDS)):
        try:
            jobs += await backend.list(each, namespace, labels)
        except ClusterError as error:
            first_served = next((name for name in own if name not in refused), None)
            is_own = each == first_served or each in seen
            if not _is_about_kind(error) or (is_own and error.code == HTTPStatus.FORBIDDEN):
                raise
            logger.debug("%s: jobs of kind %s are left out: %s", namespace, each, error)
            refused[each] = error
    if len(refused) == len(kinds.KINDS):
        raise next((error for error in refused.values() if isinstance(error, PermissionDenied)), refused[each])
    return sorted(jobs, key=lambda job: str(job["metadata"]["creationTimestamp"]))


def _is_about_kind(error: ClusterError) -> bool:
    """Return whether the kind or its job is not there, or may not be read; a 401 or an overload is about no kind."""
    return error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN} and not error.retryable
