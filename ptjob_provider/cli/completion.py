"""Completes names of jobs for a shell, in the script that click writes.

A completion that fails or takes longer than `_TIMEOUT` offers nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

_TIMEOUT = 3.0
"""Seconds; the user waits for the completion at the prompt."""


def job_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of jobs in this command line's namespace that begin so."""
    import asyncio

    from ptjob_provider.cli.parameters import target_in
    from ptjob_provider.core.errors import PTJobError

    async def names() -> list[str]:
        target = target_in(context)
        async with asyncio.timeout(_TIMEOUT):
            return [job["metadata"]["name"] for job in await target.jobs(target.open(), {})]

    try:
        return [name for name in asyncio.run(names()) if name.startswith(incomplete)]
    except (PTJobError, TimeoutError):
        return []
