"""Which job a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core import kinds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest


async def find_job(backend: Backend, namespace: str, name: str) -> Manifest:
    """Return the object of the job that has this name.

    Raises:
        JobNotFound: there is none.
    """
    return await backend.get(kinds.DEFAULT.KIND, namespace, name)


async def find_jobs(backend: Backend, namespace: str, labels: dict[str, str]) -> Sequence[Manifest]:
    """Return the jobs of a namespace that carry all these labels, oldest first."""
    return await backend.list(kinds.DEFAULT.KIND, namespace, labels)
