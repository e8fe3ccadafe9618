"""Airflow's setup of a process and its tasks for triggers, and minimal triggers."""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING, Any

import airflow.triggers.base as bases
import greenback
from airflow.sdk.log import configure_logging, reset_logging
from structlog.contextvars import bind_contextvars

from benchmarks.contender import Assignment, Ears, LoopLag, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class IdleTrigger(bases.BaseTrigger):
    """Waits and does nothing."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return a placeholder: it never leaves its process."""
        return "", {}

    async def run(self) -> AsyncIterator[bases.TriggerEvent]:
        """Sleep for longer than any benchmark."""
        await asyncio.sleep(24 * 3600)
        yield bases.TriggerEvent(None)  # type: ignore[no-untyped-call]


class LinesTrigger(bases.BaseTrigger):
    """Writes lines to Airflow's logger, one record each, and yields to the loop in between."""

    def __init__(self, *, lines: int, text: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines = lines
        self.text = text

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what another process builds the same trigger from."""
        return f"{__name__}.LinesTrigger", {"lines": self.lines, "text": self.text}

    async def run(self) -> AsyncIterator[bases.TriggerEvent]:
        """Log lines like a trigger that follows a pod's log."""
        for number in range(self.lines):
            self.log.info("%s", self.text % number)
            await asyncio.sleep(0)
        yield bases.TriggerEvent(None)  # type: ignore[no-untyped-call]


class LagTrigger(bases.BaseTrigger):
    """Measures the lag of the loop that it shares with all triggers of a runner, and writes it to a file."""

    def __init__(self, *, file: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.file = file

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what another process builds the same trigger from."""
        return f"{__name__}.LagTrigger", {"file": self.file}

    async def run(self) -> AsyncIterator[bases.TriggerEvent]:
        """Append the measurements to the file, one per line, once a second until it is cancelled."""
        lag = LoopLag()
        with open(self.file, "w", buffering=1) as file:  # noqa: ASYNC230, PTH123 - a hundred short lines a second
            while True:
                lag.begin()
                await asyncio.sleep(1.0)
                lag.end()
                file.write("".join(f"{at:.3f} {late:.6f}\n" for at, late in lag.looks))
        yield bases.TriggerEvent(None)  # type: ignore[no-untyped-call, unreachable]


async def be_a_trigger(number: int) -> None:
    """Set up the current task as the runner does for each trigger: a portal for synchronous calls, a log context."""
    await greenback.ensure_portal()
    bind_contextvars(
        trigger_id=number,
        ti_id=str(uuid.uuid4()),
        dag_id="bench",
        task_id="train",
        run_id="manual__2026",
        try_number=1,
        map_index=number,
    )


async def idle(assignment: Assignment, ears: Ears) -> None:
    """Run as many idle triggers as there are names."""

    async def run(number: int, trigger: IdleTrigger) -> None:
        await be_a_trigger(number)
        async for _ in trigger.run():
            ears.count("events")

    triggers = [IdleTrigger() for _ in assignment.names]  # type: ignore[no-untyped-call]
    await asyncio.gather(*(run(number, trigger) for number, trigger in enumerate(triggers)))


def log_as_a_triggerer_does() -> None:
    """Send log records like a triggerer's runner, as JSON over a file descriptor; here without a reader."""
    reset_logging()
    nobody = os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb", buffering=0)
    configure_logging(json_output=True, output=nobody, sending_to_supervisor=True)


def main() -> None:
    """Serve as an idle triggerer."""
    log_as_a_triggerer_does()
    serve(idle)
