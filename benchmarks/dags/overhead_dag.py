"""DAG of jobs that do nothing: half are followed in the worker, half in the trigger. Their times go to a folder.

`overhead.py` runs it with `dag.test()`, which runs triggers in its own process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.airflow.triggers import PyTorchJobTrigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OUT = Path(os.environ["OVERHEAD_OUT"])
JOBS = int(os.environ["OVERHEAD_JOBS"])
WORKERS = int(os.environ["OVERHEAD_WORKERS"])
PROGRAM = os.environ["OVERHEAD_PROGRAM"]


def write_down(job: str, what: str) -> None:
    """Write the current time to a file named after the job and the event."""
    (OUT / f"{job}.{what}").write_text(json.dumps(time.time()))


class TimedTrigger(PyTorchJobTrigger):
    """Trigger that records the time of its event."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return this class's name."""
        return f"{__name__}.TimedTrigger", super().serialize()[1]

    async def run(self) -> AsyncIterator[Any]:
        """Follow the job."""
        async for event in super().run():
            write_down(self.submission["ref"]["name"], "reported")
            yield event


class TimedOperator(PyTorchJobOperator):
    """Operator that records when `execute` begins and, if it follows the job itself, when it returns."""

    def execute(self, context: Any) -> Any:
        """Submit the job and wait for it."""
        write_down(self.name, "requested")
        result = super().execute(context)
        write_down(self.name, "reported")
        return result

    def defer(self, *, trigger: Any, **how: Any) -> Any:
        """Defer with the timed trigger."""
        super().defer(trigger=TimedTrigger(**trigger.serialize()[1]), **how)


def job(mode: str, number: int, *, deferrable: bool) -> TimedOperator:
    """Return one task; its job writes its times to a claim of the same name."""
    name = f"{mode}-{number}"
    return TimedOperator(
        task_id=name,
        name=name,
        exact_name=True,
        image="none",
        command=["sh", "-c", PROGRAM, "sh", "/out"],
        workers=WORKERS,
        volumes=[f"{name}:/out"],
        clean_pod_policy="None",
        keep_running_pods=True,
        deferrable=deferrable,
    )


with DAG("overhead", schedule=None) as dag:
    for number in range(JOBS):
        job("waits", number, deferrable=False)
        job("defers", number, deferrable=True)

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
