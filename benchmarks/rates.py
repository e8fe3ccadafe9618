"""Measures, over minutes, the requests per hour of contenders that wait for few and for many unchanged jobs."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import requests_made
from benchmarks.process import running
from benchmarks.waiting import assignment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from benchmarks.process import Kind
    from benchmarks.waiting import Crowd, User

_BEGIN = 60.0


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Requests of a contender that waited for unchanged jobs."""

    contender: str
    size: int
    seconds: float
    requests: float

    @property
    def per_hour(self) -> float:
        """Requests per hour."""
        return self.requests * 3600 / self.seconds


@dataclass(frozen=True, kw_only=True)
class Count:
    """Contenders that wait in parallel, and the server's counters at the start."""

    kind: Kind
    crowds: Sequence[tuple[Crowd, User]]
    began_at: float
    before: Sequence[requests_made.Requests]

    async def end(self, *, at_least: float) -> list[Rate]:
        """Return each contender's requests since the start, once it is at least so many seconds ago."""
        await asyncio.sleep(max(0.0, self.began_at + at_least - time.monotonic()))
        seconds = time.monotonic() - self.began_at
        after = [await requests_made.read(crowd.server, user.counted_as) for crowd, user in self.crowds]
        made = [(now - then).of_user for now, then in zip(after, self.before, strict=True)]
        return [
            Rate(contender=self.kind.name, size=len(crowd.objects), seconds=seconds, requests=number)
            for number, (crowd, _) in zip(made, self.crowds, strict=True)
        ]


@asynccontextmanager
async def counting(kind: Kind, crowds: Sequence[tuple[Crowd, User]], scratch: Path) -> AsyncIterator[Count]:
    """Run one waiting contender per crowd inside the block."""
    async with AsyncExitStack() as stack:
        for number, (crowd, user) in enumerate(crowds):
            folder = _folder(scratch, number)
            contender = await stack.enter_async_context(running(kind, assignment(crowd, user), folder))
            contender.go()
            await contender.settle(_BEGIN)
        before = [await requests_made.read(crowd.server, user.counted_as) for crowd, user in crowds]
        yield Count(kind=kind, crowds=crowds, began_at=time.monotonic(), before=before)


def _folder(scratch: Path, number: int) -> Path:
    folder = scratch / f"rate-{number}"
    folder.mkdir(exist_ok=True)
    return folder
