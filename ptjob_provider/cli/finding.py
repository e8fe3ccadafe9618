"""Which job a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core import kinds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest


async def find_job(backend: Backend, namespace: str, name: str, *, kind: str | None = None) -> Manifest:
    """Return the object of the job that has this name.

    Raises:
        JobNotFound: there is none.
    """
    return await backend.get(kind or kinds.DEFAULT.KIND, namespace, name)


async def find_jobs(
    backend: Backend, namespace: str, labels: Mapping[str, str], *, kind: str | None = None
) -> Sequence[Manifest]:
    """Return the jobs of a namespace that carry all these labels, oldest first; "" is all namespaces."""
    return await backend.list(kind or kinds.DEFAULT.KIND, namespace, labels)
