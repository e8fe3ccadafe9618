"""Minimal triggers, and the setup that Airflow's runner gives its process and each trigger's asyncio task."""

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
    """Trigger that does nothing but wait."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return a placeholder: this trigger is never passed to another process."""
        return "", {}

    async def run(self) -> AsyncIterator[bases.TriggerEvent]:
        """Sleep for longer than any benchmark."""
        await asyncio.sleep(24 * 3600)
        yield bases.TriggerEvent(None)  # type: ignore[no-untyped-call]


class LinesTrigger(bases.BaseTrigger):
    """Trigger that writes lines to Airflow's logger, one record each, and yields to the loop in between."""

    def __init__(self, *, lines: int, text: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines = lines
        self.text = text

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments with which another process creates the same trigger."""
        return f"{__name__}.LinesTrigger", {"lines": self.lines, "text": self.text}

    async def run(self) -> AsyncIterator[bases.TriggerEvent]:
        """Log lines like a trigger that follows a pod's log."""
        for number in range(self.lines):
            self.log.info("%s", self.text % number)
            await asyncio.sleep(0)
        yield bases.TriggerEvent(None)  # type: ignore[no-untyped-call]


class LagTrigger(bases.BaseTrigger):
    """Trigger that measures the lag of the loop that all triggers of a runner share, and writes it to a file."""

    def __init__(self, *, file: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.file = file

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments with which another process creates the same trigger."""
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


async def idle(assignment: Assignment, _: Ears) -> None:
    """Run one idle trigger for each name."""

    async def run(number: int, trigger: IdleTrigger) -> None:
        await be_a_trigger(number)
        async for _ in trigger.run():
            pass

    triggers = [IdleTrigger() for _ in assignment.names]  # type: ignore[no-untyped-call]
    await asyncio.gather(*(run(number, trigger) for number, trigger in enumerate(triggers)))


def log_as_a_triggerer_does() -> None:
    """Write log records as a triggerer's runner does, as JSON to a file descriptor; here they are discarded."""
    reset_logging()
    discarded = os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb", buffering=0)
    configure_logging(json_output=True, output=discarded, sending_to_supervisor=True)


def main() -> None:
    """Serve as a contender with idle triggers."""
    log_as_a_triggerer_does()
    serve(idle)
