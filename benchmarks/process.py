"""Starts contenders for the measuring process, sends them commands, and reads their observations."""

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
"""Priority of contenders over the API server on the same machine: its load must not add to their lag."""

_LONGEST_LINE = 64 * 1024 * 1024
_PATIENCE = 120.0
_IS_QUIET = 0.15
"""Cores; a contender that uses less for `_QUIET_FOR` seconds has finished its start."""
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
        """Let the contender start to wait for its objects."""
        self._send("go")

    def watch_its_lag(self) -> None:
        """Start measuring its event loop's lag."""
        self._send("lag-begin")

    async def lag(self) -> list[float]:
        """Stop measuring; return its loop's lag by measurement, in seconds."""
        values: list[float] = (await self._request("lag-end"))["lag"]
        return values

    async def endings(self) -> dict[str, float]:
        """Return when it knew of each ending: name → seconds since 1970."""
        times: dict[str, float] = (await self._request("tell"))["endings"]
        return times

    async def find(self) -> None:
        """Read the id of the process to measure, which may be a program that the contender has started."""
        self.pid = (await self._request("tell"))["pid"]

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
                    message: dict[str, Any] = json.loads(line)
                    return message
        last = self._errors.read_text(errors="replace")[-3000:]
        raise ContenderFailed(f"{self.kind.name}: no answer; it had said:\n{last}")

    async def _request(self, command: str) -> dict[str, Any]:
        self._send(command)
        return await self.answer()

    def _send(self, command: str) -> None:
        if self._process.stdin is None:
            raise AssertionError("its input was asked for")
        self._process.stdin.write(f"{command}\n".encode())


@asynccontextmanager
async def running(kind: Kind, assignment: Assignment, scratch: Path) -> AsyncIterator[Contender]:
    """Start a contender, which has imported everything when the block begins; it ends with the block."""
    file, errors = scratch / "assignment.json", scratch / f"{kind.module}-{kind.variant}.log"
    file.write_text(json.dumps(asdict(assignment)))
    with errors.open("wb") as stderr:
        process = await _start(kind, file, stderr)
        contender = Contender(kind, process, errors)
        try:
            await contender.answer()
            yield contender
        finally:
            await _end(process)


async def _start(kind: Kind, assignment: Path, errors: IO[bytes]) -> asyncio.subprocess.Process:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PTJOB_", "KUBE"))
    }
    process = await asyncio.create_subprocess_exec(
        *(str(kind.python), "-m", "benchmarks.contender", kind.module, str(assignment), kind.variant),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        limit=_LONGEST_LINE,
        start_new_session=True,
        env={**inherited, "PYTHONPATH": SEARCHED, "AIRFLOW_HOME": str(assignment.parent)},
    )
    put_first(process.pid)
    return process


def put_first(pid: int) -> None:
    """Raise the priority of a process that leads a session, within the session and of the session as a whole."""
    os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
    autogroup = Path(f"/proc/{pid}/autogroup")
    if autogroup.exists():
        autogroup.write_text(str(NICENESS))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(30):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
