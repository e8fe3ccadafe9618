"""A contender as seen by the measuring process: receives commands, returns its observations, and is measured."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks import meter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.contender import Assignment

ROOT = Path(__file__).resolve().parent.parent
SEARCHED = f"{ROOT / 'tests'}{os.pathsep}{ROOT}"
"""PYTHONPATH of contenders."""

NICENESS = -10
"""Contenders have priority over the API server on the same machine: its load must not add to their lag."""

_LONGEST_LINE = 64 * 1024 * 1024
_PATIENCE = 120.0
_IS_QUIET = 0.15
"""Cores, over `_QUIET_FOR` seconds: a contender that uses less has finished its start."""
_QUIET_FOR = 7.0
"""Longer than the delay after which our trigger logs why its job does not run yet."""

_LOOK = 0.1


class ContenderFailed(Exception):
    """A contender ended or did not respond; the message has its last output."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Command that starts a contender.

    Attributes:
        name: for people.
        module: below `benchmarks.contenders`.
        variant: one of the module's variants.
        python: the interpreter of its environment.
    """

    name: str
    module: str
    variant: str = ""
    python: Path = Path(sys.executable)


class Contender:
    """A running contender."""

    def __init__(self, kind: Kind, process: asyncio.subprocess.Process, errors: Path) -> None:
        self.kind = kind
        self.pid = process.pid
        self._process = process
        self._errors = errors

    def go(self) -> None:
        """Start waiting."""
        self._say("go")

    def watch_its_lag(self) -> None:
        """Start measuring its event loop's lag."""
        self._say("lag-begin")

    async def lag(self) -> list[float]:
        """Stop measuring; return its loop's lag by measurement, in seconds."""
        found: list[float] = (await self._asked("lag-end"))["lag"]
        return found

    async def endings(self) -> dict[str, float]:
        """Return when it knew of each ending: name → seconds since 1970."""
        found: dict[str, float] = (await self._asked("tell"))["endings"]
        return found

    async def counts(self) -> dict[str, float]:
        """Return its counters."""
        found: dict[str, float] = (await self._asked("tell"))["counts"]
        return found

    async def find(self) -> None:
        """Read the id of the process to measure: a contender may only have started it."""
        self.pid = (await self._asked("tell"))["pid"]

    async def settle(self, patience: float) -> float | None:
        """Return how many seconds its start took; None if it has not finished within `patience`."""
        loop = asyncio.get_running_loop()
        began_at = busy_at = loop.time()
        looks = [(began_at, meter.cpu_seconds(self.pid))]
        while loop.time() - began_at < patience:
            await asyncio.sleep(_LOOK)
            now, used = loop.time(), meter.cpu_seconds(self.pid)
            if (used - looks[-1][1]) / (now - looks[-1][0]) > _IS_QUIET:
                busy_at = now
            looks.append((now, used))
            if now - busy_at >= _QUIET_FOR:
                return busy_at - began_at
        return None

    async def answer(self) -> dict[str, Any]:
        """Return its next message.

        Raises:
            ContenderFailed: it sends none.
        """
        if self._process.stdout is None:
            raise AssertionError("its output was asked for")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                line = await self._process.stdout.readline()
                if line:
                    said: dict[str, Any] = json.loads(line)
                    return said
        last = self._errors.read_text(errors="replace")[-3000:]
        raise ContenderFailed(f"{self.kind.name}: no answer; it had said:\n{last}")

    async def _asked(self, word: str) -> dict[str, Any]:
        self._say(word)
        return await self.answer()

    def _say(self, word: str) -> None:
        if self._process.stdin is None:
            raise AssertionError("its input was asked for")
        self._process.stdin.write(f"{word}\n".encode())


@asynccontextmanager
async def running(kind: Kind, assignment: Assignment, scratch: Path) -> AsyncIterator[Contender]:
    """Start a contender that has loaded everything and waits for `go`; it is ended afterwards."""
    file, errors = scratch / "assignment.json", scratch / f"{kind.module}-{kind.variant}.log"
    file.write_text(json.dumps(asdict(assignment)))
    with errors.open("wb") as said:
        process = await _started(kind, file, said)
        contender = Contender(kind, process, errors)
        try:
            await contender.answer()
            yield contender
        finally:
            await _ended(process)


async def _started(kind: Kind, assignment: Path, errors: IO[bytes]) -> asyncio.subprocess.Process:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PTJOB_", "KUBE"))}
    process = await asyncio.create_subprocess_exec(
        *(str(kind.python), "-m", "benchmarks.contender", kind.module, str(assignment), kind.variant),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        limit=_LONGEST_LINE,
        start_new_session=True,
        env={**ours, "PYTHONPATH": SEARCHED, "AIRFLOW_HOME": str(assignment.parent)},
    )
    put_first(process.pid)
    return process


def put_first(pid: int) -> None:
    """Raise the priority of a process that leads a session: niceness, within sessions and between them."""
    os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
    between = Path(f"/proc/{pid}/autogroup")
    if between.exists():
        between.write_text(str(NICENESS))


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(30):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
