"""Starts `bare_triggerer`, and gives the measuring process its two process ids, its logs and its triggers' events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks import meter
from benchmarks.process import SEARCHED, put_first

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

LARGEST_EVENT = 64 * 1024 * 1024


@dataclass
class TriggererRun:
    """A running triggerer.

    Attributes:
        logs: the folder of the triggers' logs.
        parent: the supervisor's process id.
        runner: process id of the runner, whose loop runs the triggers.
        events: the fired events or failures by the trigger's number, which counts from 1.
    """

    logs: Path
    parent: int
    runner: int = 0
    events: dict[int, Any] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> tuple[float, float]:
        """CPU seconds of supervisor and runner."""
        return meter.cpu_seconds(self.parent), meter.cpu_seconds(self.runner)

    async def hear(self, output: asyncio.StreamReader) -> None:
        """Read the triggerer's output until it ends."""
        async for line in output:
            if not line.startswith(b"{"):
                continue
            message = json.loads(line)
            if "runner" in message:
                self.runner = message["runner"]
            else:
                self.events[message["id"]] = message.get("event", message.get("failure"))


def ordered(classpath: str, log: str, **kwargs: Any) -> dict[str, Any]:
    """Return the specification of one trigger: one item of the file that `bare_triggerer` reads."""
    return {"classpath": classpath, "kwargs": kwargs, "log": log}


@asynccontextmanager
async def triggerer(order: Sequence[dict[str, Any]], scratch: Path, settings: str = "") -> AsyncIterator[TriggererRun]:
    """Start a triggerer with these triggers and `airflow_local_settings`, and end it when the block ends."""
    (scratch / "home" / "config").mkdir(parents=True, exist_ok=True)
    (scratch / "home" / "config" / "airflow_local_settings.py").write_text(settings)
    file = _write(order, scratch)
    with (scratch / "bare-triggerer.log").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.bare_triggerer", str(file)),
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=LARGEST_EVENT,
            start_new_session=True,
            env=_environment(scratch),
        )
    put_first(process.pid)
    run = TriggererRun(logs=scratch / "logs", parent=process.pid)
    if process.stdout is None:
        raise AssertionError("its output was asked for")
    reader = asyncio.create_task(run.hear(process.stdout))
    try:
        yield run
    finally:
        process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                await process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the runner, its child process, outlives it
        await process.wait()
        reader.cancel()


def _environment(scratch: Path) -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PTJOB_", "KUBE"))
    }
    return {
        **inherited,
        "PYTHONPATH": SEARCHED,
        "AIRFLOW_HOME": str(scratch / "home"),
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(scratch / "logs"),
        "AIRFLOW__PTJOB__BACKEND": "kubernetes",
    }


def _write(order: Sequence[dict[str, Any]], scratch: Path) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    file = scratch / "order.json"
    file.write_text(json.dumps(list(order)))
    return file
