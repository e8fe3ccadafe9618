"""Runs Airflow's own triggerer, with its supervisor, runner and logs, on triggers from a file instead of a database.

    python -m benchmarks.bare_triggerer ORDER.json

Airflow supports supervisors without a database (AIP-92): this module overrides the methods that the base class names
for that. It prints one JSON object per line: the runner's process id, then each event as it arrives.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from airflow.executors import workloads
from airflow.executors.workloads.task import TaskInstanceDTO
from airflow.jobs.triggerer_job_runner import TriggerLoggingFactory, TriggerRunnerSupervisor
from airflow.models.trigger import Trigger
from airflow.sdk.execution_time.comms import GetTaskStates, GetXCom, OKResponse, SetXCom, TaskStatesResult, XComResult

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

CAPACITY = 20_000


@attrs.define(kw_only=True)
class BareTriggerer(TriggerRunnerSupervisor):
    """Supervisor that runs the given triggers until it is stopped; requests about tasks get empty responses."""

    def load_triggers(self) -> None:
        """Do nothing: all triggers were given at the beginning."""

    def heartbeat(self) -> None:
        """Do nothing: there is no scheduler."""

    def clean_unused(self) -> None:
        """Do nothing: there is no database."""

    def metric_tags(self) -> dict[str, str]:
        """Return the tags that metrics require."""
        return {"hostname": "benchmark"}

    def handle_events(self) -> None:
        """Print each event."""
        while self.events:
            entry = self.events.popleft()
            say({"id": entry.trigger_id, "event": getattr(entry.event, "payload", None)})

    def handle_failed_triggers(self) -> None:
        """Print each failure."""
        while self.failed_triggers:
            number, why = self.failed_triggers.popleft()
            say({"id": number, "failure": "".join(why or [])[-2000:]})

    def give(self, number: int, classpath: str, kwargs: dict[str, Any], log: str) -> None:
        """Create a trigger for a task; `log` is the path of its log, relative to Airflow's folder of logs."""
        task = TaskInstanceDTO(
            id=uuid.uuid4(),
            dag_id="bench",
            task_id=f"task-{number}",
            run_id="manual__2026",
            try_number=1,
            dag_version_id=uuid.uuid4(),
            pool_slots=1,
            priority_weight=1,
        )
        self.logger_cache[number] = TriggerLoggingFactory(log_path=log, ti=task)  # type: ignore[arg-type]
        self.creating_triggers.append(
            workloads.RunTrigger(
                id=number, classpath=classpath, encrypted_kwargs=Trigger.encrypt_kwargs(kwargs), ti=task
            )
        )

    def _handle_request(self, msg: Any, log: FilteringBoundLogger, req_id: int) -> None:
        responses: dict[type, Any] = {
            GetXCom: lambda: XComResult(key=msg.key, value=None),
            SetXCom: lambda: OKResponse(ok=True),
            GetTaskStates: lambda: TaskStatesResult(task_states={}),
        }
        if type(msg) in responses:
            self.send_msg(responses[type(msg)](), request_id=req_id, error=None)
            return
        super()._handle_request(msg, log, req_id)


def say(message: dict[str, Any]) -> None:
    """Write one line for the measuring process."""
    sys.stdout.write(json.dumps(message, default=str) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the triggers of the file on the command line until this process is ended."""
    order = json.loads(Path(sys.argv[1]).read_text())
    triggerer = BareTriggerer.start(capacity=CAPACITY)
    for number, each in enumerate(order, start=1):
        triggerer.give(number, each["classpath"], each["kwargs"], each["log"])
    say({"runner": triggerer.pid})
    triggerer.run()


if __name__ == "__main__":
    main()
