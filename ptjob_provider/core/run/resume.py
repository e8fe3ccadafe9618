"""Find the checkpoint from which an attempt after the first goes on, before its job is created."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterUnavailable, PTJobError
from ptjob_provider.core.outgoing import readable

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.kinds import Rendered

_PAUSE = 10.0
"""Seconds before a look that gave no answer is repeated."""


async def found_checkpoint(
    backend: Backend, rendered: Rendered, *, since: datetime, patience: float, tell: Callable[[str], None]
) -> tuple[dict[str, str], int | None]:
    """Return the variable with the newest complete checkpoint's path, and its step; none if there is none.

    Args:
        backend: where the job will run.
        rendered: the job; without declared checkpoints, nothing is looked at.
        since: creation time of the task's first attempt.
        patience: seconds for which a look without an answer is repeated. Each look has a time limit of its own.
        tell: takes sentences about the choice.

    Raises:
        ClusterUnavailable: there was no answer in time.
    """
    folder, meta, failed = rendered.outputs.checkpoints, rendered.manifest["metadata"], ""
    if folder is None:
        return {}, None
    job = f"{meta['namespace']}/{meta['name']}"
    clock = asyncio.get_running_loop().time
    ends = clock() + patience
    while True:
        try:
            found = await backend.find_checkpoint(rendered.manifest, folder, since=since)
        except PTJobError as error:
            if not failed:
                tell(f"{job}: its checkpoints are looked at again, for up to {patience:.0f} s: {error}")
            failed = f": {error}"
        else:
            tell(readable(f"{job}: {found.sentence(folder)}"))
            return found.variables(folder), found.step
        if clock() + _PAUSE >= ends:
            break
        await asyncio.sleep(_PAUSE)
    unknown = f"{job}: whether {folder.uri} has a complete checkpoint is unknown after {patience:.0f} s{failed}"
    why = "No job was created, because one that begins at step 0 would overwrite what is there"
    raise ClusterUnavailable(f"{unknown}. {why}")
