"""What Airflow does to a process and its tasks before triggers run in it, and triggers that do next to nothing."""

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
        """Return nothing that anybody reads: it never leaves its process."""
        return "", {}

    async def run(self) -> AsyncIterator[bases.TriggerEvent]:
        """Sleep for longer than any benchmark."""
        await asyncio.sleep(24 * 3600)
        yield bases.TriggerEvent(None)  # type: ignore[no-untyped-call]


class LinesTrigger(bases.BaseTrigger):
    """Gives lines to Airflow's logger, one record each, and lets the loop go on in between."""

    def __init__(self, *, lines: int, text: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines = lines
        self.text = text

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what another process builds the same trigger from."""
        return f"{__name__}.LinesTrigger", {"lines": self.lines, "text": self.text}

    async def run(self) -> AsyncIterator[bases.TriggerEvent]:
        """Log, as somebody would who follows a pod's log."""
        for number in range(self.lines):
            self.log.info("%s", self.text % number)
            await asyncio.sleep(0)
        yield bases.TriggerEvent(None)  # type: ignore[no-untyped-call]


class LagTrigger(bases.BaseTrigger):
    """Looks how late the loop is that it shares with all triggers of a runner, and writes that to a file."""

    def __init__(self, *, file: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.file = file

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what another process builds the same trigger from."""
        return f"{__name__}.LagTrigger", {"file": self.file}

    async def run(self) -> AsyncIterator[bases.TriggerEvent]:
        """Add what was seen to the file, a look a line, once a second until nobody wants it any more."""
        lag = LoopLag()
        with open(self.file, "w", buffering=1) as file:  # noqa: ASYNC230, PTH123 - a hundred short lines a second
            while True:
                lag.begin()
                await asyncio.sleep(1.0)
                lag.end()
                file.write("".join(f"{at:.3f} {late:.6f}\n" for at, late in lag.looks))
        yield bases.TriggerEvent(None)  # type: ignore[no-untyped-call, unreachable]


async def be_a_trigger(number: int) -> None:
    """Do to the current task what the runner does to each trigger's: a portal for synchronous calls, a log context."""
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
    """Send log records the way that a triggerer's runner does, as JSON over a file descriptor; here to nobody."""
    reset_logging()
    nobody = os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb", buffering=0)
    configure_logging(json_output=True, output=nobody, sending_to_supervisor=True)


def main() -> None:
    """Serve as an idle triggerer."""
    log_as_a_triggerer_does()
    serve(idle)
