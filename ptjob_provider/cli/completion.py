"""Completes names of jobs, replicas and kinds for a shell, in the script that click writes.

A completion that fails or takes longer than `_TIMEOUT` offers nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ptjob_provider.cli.target import Target

    Completion = Callable[[click.Context, click.Parameter, str], list[str]]

_TIMEOUT = 3.0
"""Seconds; the user waits for the completion at the prompt."""


def _completion(words: Callable[[Target, click.Context], Awaitable[list[str]]]) -> Completion:
    """Return the completion with these words; it offers nothing if they cannot be read in time."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        import asyncio

        from ptjob_provider.cli.parameters import target_in
        from ptjob_provider.core.errors import PTJobError

        async def in_time() -> list[str]:
            async with asyncio.timeout(_TIMEOUT):
                return await words(target_in(context), context)

        try:
            return [word for word in asyncio.run(in_time()) if word.startswith(incomplete)]
        except (PTJobError, TimeoutError, click.UsageError):
            return []

    return complete


async def _jobs(target: Target, _: click.Context) -> list[str]:
    return [job["metadata"]["name"] for job in await target.jobs(target.open(), {})]


async def _replicas(target: Target, context: click.Context) -> list[str]:
    from ptjob_provider.core import kinds

    # If an option lacks its value, click stops parsing and leaves the name in `args`.
    name = context.params.get("name") or next(iter(context.args), None)
    job = await target.find(target.open(), name) if name else None
    if job is None:
        return []
    return [*(f"{replica.role}-{replica.index}" for replica in kinds.replicas(job)), *kinds.unranked(job)]


job_names = _completion(_jobs)
"""Names of jobs in this command line's namespace."""

replicas = _completion(_replicas)
"""Replicas of this command line's job, in the form that `-i` takes."""


def kinds(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds of jobs."""
    from ptjob_provider.core.manifest import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]
