"""Completes a command line for a shell: jobs, replicas, claims, namespaces; quickly, or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import click

from ptjob_provider.cli.parameters import place_in
from ptjob_provider.core import kinds
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.run.lookup import list_jobs as find_jobs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ptjob_provider.cli.place import Place

T = TypeVar("T")

_PATIENCE = 3.0
"""Timeout in seconds; a person who has pressed the key waits."""


def names_of(context: click.Context) -> list[str]:
    """Return the names of the jobs in this command line's namespace."""
    return _asked(context, _names)


def replicas_of(context: click.Context) -> list[str]:
    """Return the replicas of this command line's job, in the form that `-i` takes."""
    name = context.params.get("name") or next(iter(context.args), None)  # click stops at an option without its value
    return _asked(context, lambda place: _replicas(place, name)) if name else []


def claims_of(context: click.Context) -> list[str]:
    """Return the names of the claims in this command line's namespace."""
    return _asked(context, _claims)


def namespaces_of(context: click.Context) -> list[str]:
    """Return the namespaces known without a request: those of contexts, or of this machine's jobs."""
    return _asked(context, _namespaces)


def _asked(context: click.Context, what: Callable[[Place], Awaitable[list[str]]]) -> list[str]:
    try:
        return asyncio.run(_in_time(what(place_in(context))))
    except (PTJobError, TimeoutError, click.UsageError):
        return []


async def _in_time(work: Awaitable[T]) -> T:
    async with asyncio.timeout(_PATIENCE):
        return await work


async def _names(place: Place) -> list[str]:
    return [job["metadata"]["name"] for job in await find_jobs(place.open(), place.namespace, {}, kind=place.kind)]


async def _replicas(place: Place, name: str) -> list[str]:
    found = kinds.replicas(await place.find(place.open(), name))
    return [f"{replica.role}-{replica.index}" for replica in found]


async def _claims(place: Place) -> list[str]:
    return [claim["metadata"]["name"] for claim in await place.site().claims(place.namespace)]


async def _namespaces(place: Place) -> list[str]:
    if place.backend == "local":
        folder = place.root / "jobs"
        return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    from ptjob_provider.cli.kubeconfig import known_namespaces  # noqa: PLC0415 - loads YAML

    return known_namespaces(place.kubeconfigs)
