"""A stream of a log as it comes, given up where a file may have been left out; what is doubtful, `pace` says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ptjob_provider.core.kubernetes.podlog.pace import Pace


class Doubtful(Exception):
    """The stream was read so slowly that the kubelet may have left a file out."""


async def paced(chunks: AsyncGenerator[bytes, None], pace: Pace) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a stream as they come, and take note of how.

    Raises:
        Doubtful: another file may have been begun without the kubelet's noticing.
    """
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        try:
            async with asyncio.timeout(pace.patience(began)):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise Doubtful from None
        if chunk is None:
            return
        pace.take(len(chunk), waited=clock() - began, now=clock())
        yield chunk
