"""Runs a contender: reads commands from standard input, and reports the contender's observations on standard output.

It runs in a separate process and imports the standard library only, so that every environment can run it. It prints one
JSON object per line; all other output of the process goes to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

LAG_INTERVAL = 0.01
"""Seconds between two measurements of the event loop's lag; 100 per second cost about 0.5 % of a core."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Objects to wait for, and the user to wait as.

    Attributes:
        kubeconfig: kubeconfig of the contender's own user, by which the server counts its requests.
        namespace: the objects' namespace.
        names: names of the objects.
        submissions: the jobs among them, as `Submission.to_dict` returns them.
        options: further options of this contender.
    """

    kubeconfig: str
    namespace: str
    names: list[str]
    submissions: list[dict[str, Any]]
    options: dict[str, Any]


class Ears:
    """Collects a contender's observations.

    Attributes:
        endings: when the contender learned of each ending: name → seconds since 1970.
        measured_pid: the process to measure; a contender that starts a program sets it.
    """

    def __init__(self) -> None:
        self.endings: dict[str, float] = {}
        self.measured_pid = os.getpid()

    def ended(self, name: str) -> None:
        """Record that the contender knows of this ending; a revived object can end again."""
        self.endings[name] = time.time()


class LoopLag:
    """Measures the lag of the event loop. `looks` has the time of each measurement, and the lag."""

    def __init__(self) -> None:
        self.looks: list[tuple[float, float]] = []
        self._sampling: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start measuring."""
        self.looks = []
        self._sampling = asyncio.create_task(self._sample())

    def end(self) -> list[float]:
        """Stop measuring; return the lag of each measurement, in seconds."""
        if self._sampling is not None:
            self._sampling.cancel()
        return [late for _, late in self.looks]

    async def _sample(self) -> None:
        while True:
            due = time.perf_counter() + LAG_INTERVAL
            await asyncio.sleep(LAG_INTERVAL)
            self.looks.append((time.time(), time.perf_counter() - due))


def serve(wait: Callable[[Assignment, Ears], Awaitable[None]]) -> None:
    """Execute the commands on standard input until it ends: `go`, `lag-begin`, `lag-end`, `tell`."""
    say = _reserve_stdout()
    assignment = Assignment(**json.loads(Path(sys.argv[2]).read_text()))
    asyncio.run(_serve(wait, assignment, say))
    os._exit(0)  # threads of a synchronous contender may still wait


async def _serve(
    wait: Callable[[Assignment, Ears], Awaitable[None]],
    assignment: Assignment,
    say: Callable[[Mapping[str, Any]], None],
) -> None:
    ears, lag = Ears(), LoopLag()
    waiting: asyncio.Task[None] | None = None
    commands = await _read_stdin()
    say({"ready": ears.measured_pid})
    while command := (await commands.readline()).decode().strip():
        if command == "go":
            waiting = asyncio.ensure_future(wait(assignment, ears))
            waiting.add_done_callback(_raise_failure)
        elif command == "lag-begin":
            lag.begin()
        elif command == "lag-end":
            say({"lag": lag.end()})
        elif command == "tell":
            say({"endings": ears.endings, "pid": ears.measured_pid})
    if waiting is not None:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting


def _raise_failure(waiting: asyncio.Task[None]) -> None:
    if not waiting.cancelled() and waiting.exception() is not None:
        raise SystemExit(f"the contender failed: {waiting.exception()!r}") from waiting.exception()


async def _read_stdin() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def _reserve_stdout() -> Callable[[Mapping[str, Any]], None]:
    """Return a function that writes messages to standard output; any other `print` now goes to standard error."""
    stdout = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(message: Mapping[str, Any]) -> None:
        stdout.write(json.dumps(message) + "\n")

    return say


if __name__ == "__main__":
    import_module(f"benchmarks.contenders.{sys.argv[1]}").main()
