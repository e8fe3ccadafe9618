"""The names of jobs for a shell that completes a command line: quickly, or none."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from ptjob_provider.cli.place import Asked, find_place
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.lookup import list_jobs as find_jobs

if TYPE_CHECKING:
    import click

_PATIENCE = 3.0
"""Seconds; a person who has pressed the key waits."""

_ASKED = ("backend", "namespace", "root", "claims", "kubeconfig", "context")


def names_of(context: click.Context) -> list[str]:
    """Return the names of the jobs where this command line looks."""
    said = context.find_root().params
    asked = {name: said.get(name) for name in _ASKED} | {"namespace": context.params.get("namespace")}
    try:
        place = find_place(Asked(**{**asked, "namespace": asked["namespace"] or said.get("namespace")}), os.environ)
        return asyncio.run(_listed(find_jobs(place.open(), place.namespace, {}, kind=place.kind)))
    except (PTJobError, TimeoutError, ValueError):
        return []


async def _listed(listing: object) -> list[str]:
    async with asyncio.timeout(_PATIENCE):
        return [job["metadata"]["name"] for job in await listing]  # type: ignore[misc]
