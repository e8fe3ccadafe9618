"""`make demo-retraining`: batches of digits arrive, and a real Airflow retrains, promotes and refuses automatically.

A program delivers the batches, as a producer of data would. A watcher in the triggerer observes them, and the DAG file,
`dags/digits_retraining.py`, does the rest. One batch has swapped labels, and its model is refused; then it is delivered
again with the right ones. The output is a table of models, data versions and accuracies, and a picture of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from demo.folder import ROOT, Folder, make_folder
from demo.machine import Machine
from demo.retrained import Retrained, picture, retrained, table
from demo.session import DemonstrationFailed, demonstrate, heed_signals, make_console, stack_config
from demo.stack import Stack
from demo.story import Story

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

DAG_ID, CONSUMER = "digits_retraining", "digits_champion"
RUN_TIMEOUT = 900
ARRIVAL_TIMEOUT = 300


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A part of scikit-learn's digits, delivered as a folder."""

    name: str
    first: int
    count: int
    is_spoilt: bool = False


SPOILT = Batch(name="004", first=360, count=400, is_spoilt=True)
ARRIVALS: tuple[tuple[str, tuple[Batch, ...]], ...] = (
    ("the first batch arrives", (Batch(name="001", first=0, count=60),)),
    (
        "two batches arrive at once",
        (Batch(name="002", first=60, count=150), Batch(name="003", first=210, count=150)),
    ),
    ("a batch arrives whose labels were exchanged", (SPOILT,)),
    ("that batch is delivered again, as it should be", (replace(SPOILT, is_spoilt=False),)),
)


def main() -> int:
    """Run the demonstration and return the exit code: 0 if it went as described above."""
    args = parse_args()
    console = make_console()
    heed_signals()
    folder = make_folder(args.folder)
    place = Machine(folder=folder, command="make demo-retraining")
    stack = Stack(stack_config(folder, place, port=args.port, settings=settings(folder)))
    return demonstrate(stack, place, console, lambda: show(stack, folder, place, console))


def settings(folder: Folder) -> dict[str, str]:
    """Return the DAG file's settings: the address of incoming data, and the ledger."""
    ledger = {"conn_type": "sqlite", "host": str(folder.path / "ledger.db")}
    return {"DIGITS_INCOMING": str(incoming(folder)), "AIRFLOW_CONN_DIGITS_LEDGER": json.dumps(ledger)}


def incoming(folder: Folder) -> Path:
    """Return the folder to which batches are delivered."""
    return folder.path / "incoming"


def show(stack: Stack, folder: Folder, place: Machine, console: Console) -> int:
    """Start Airflow, deliver batches, show the results, and return the exit code."""
    began = time.monotonic()
    console.print(f"[bold]Airflow[/] in {folder.shown}: its own database, scheduler, triggerer and page")
    console.print(f"[bold]Jobs[/] {place.title}")
    place.prepare()
    incoming(folder).mkdir()
    stack.start(tell=lambda part: console.print(f"  {part:<14} ready after {time.monotonic() - began:4.1f} s"))
    for dag_id in (DAG_ID, CONSUMER):
        stack.api.wait_for_dag(dag_id)
        stack.api.unpause(dag_id)
    trainings = Trainings(stack, console)
    models: list[Retrained] = []
    for title, batches in ARRIVALS:
        console.rule(f"[bold]{title}[/]")
        for line in drop(batches, folder):
            console.print(f"[dim]dropped[/] {line}")
        waiting = {batch.name for batch in batches}
        while waiting:
            models.append(retrained(stack, place, DAG_ID, trainings.show_next()))
            waiting -= set(models[-1].new)
    wait_for_consumer(stack, models[-1].generation)
    return summarize(models, folder, console)


@dataclass
class Trainings:
    """Runs that arriving data creates, one after the other."""

    stack: Stack
    console: Console

    def __post_init__(self) -> None:
        self._shown: set[str] = set()
        self._skipped: set[str] = set()

    def show_next(self) -> str:
        """Show the next run that trains, from its reservation to its end, and return its id.

        Raises:
            TimeoutError: no run was created in time.
            DemonstrationFailed: the run failed.
            StackFailed: a component has ended.
        """
        run_id = self._next()
        self.console.print(f"{DAG_ID}: the data made the run [bold]{run_id}[/]")
        state = Story(self.stack, self.console, DAG_ID, run_id).tell(timeout=RUN_TIMEOUT)
        self._shown.add(run_id)
        if state != "success":
            raise DemonstrationFailed(f"the run {run_id} ended as {state}")
        return run_id

    def _next(self) -> str:
        deadline = time.monotonic() + ARRIVAL_TIMEOUT
        while time.monotonic() < deadline:
            self.stack.check_alive()
            for run in reversed(self.stack.api.runs(DAG_ID)):
                run_id = str(run["dag_run_id"])
                if run_id not in self._shown | self._skipped and self._trains(run_id):
                    return run_id
            time.sleep(0.5)
        raise TimeoutError(f"no run trains {ARRIVAL_TIMEOUT} s after data arrived\n{self.stack['triggerer'].tail()}")

    def _trains(self, run_id: str) -> bool:
        """Return whether a run has reserved batches; print that a run without any is skipped."""
        state = self.stack.api.task(DAG_ID, run_id, "claim")["state"]
        if state == "skipped":
            self._skipped.add(run_id)
            self.console.print(f"[dim]{run_id} is skipped: what it was made for was trained on already[/]")
        return state in {"success", "failed", "upstream_failed"}


def drop(batches: Sequence[Batch], folder: Folder) -> list[str]:
    """Write the batches with the digits' delivery program, move all into place at once, and return the output.

    Raises:
        DemonstrationFailed: the program failed.
    """
    outside = folder.path / "delivery"
    output = [_deliver(batch, outside) for batch in batches]
    for batch in batches:
        place = incoming(folder) / batch.name
        if place.exists():  # the batch is delivered again: keep the earlier version aside
            place.rename(folder.path / f"{batch.name}-before")
        (outside / batch.name).rename(place)
    return output


def _deliver(batch: Batch, outside: Path) -> str:
    program = ROOT / "docker" / "digits" / "deliver.py"
    which = ["--to", str(outside / batch.name), "--first", str(batch.first), "--count", str(batch.count)]
    command = [sys.executable, str(program), *which, *(["--spoil"] if batch.is_spoilt else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise DemonstrationFailed(f"{batch.name} was not delivered:\n{done.stdout}")
    return done.stdout.strip().replace(f"{outside}/", "")


def wait_for_consumer(stack: Stack, champion: int, *, timeout: float = 120) -> None:
    """Return once the consumer has received this champion.

    Raises:
        TimeoutError: the consumer has not received it in time; the message names the one that it received last.
    """
    read = 0
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        stack.check_alive()
        runs = stack.api.runs(CONSUMER)
        if runs and runs[0]["state"] == "success":
            read = int(stack.api.xcom(CONSUMER, runs[0]["dag_run_id"], "serve")["generation"])
        if read == champion:
            return
        time.sleep(0.5)
    raise TimeoutError(f"{CONSUMER} has not read champion {champion} within {timeout:.0f} s, but {read or 'none'}")


def summarize(models: list[Retrained], folder: Folder, console: Console) -> int:
    """Show the table; return 0 if better models were promoted and worse ones refused."""
    console.rule("every model, and what became of it")
    console.print(table(models))
    latest = Folder(path=folder.path.parent / "latest")
    picture(models, folder.path / "accuracy.svg")
    console.print(f"\n{CONSUMER} learned from the asset's event that champion {models[-1].generation} is in service")
    console.print(f"[dim]the picture[/]        {latest.shown}/accuracy.svg")
    console.print(f"[dim]the champion[/]       {latest.shown}/jobs/claims/default/digits/champion/current.json")
    console.print(f"[dim]what arrived[/]       {latest.shown}/incoming")
    return 0 if [model.is_promoted for model in models] == [True, True, False, True] else 1


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m demo.retraining", description=__doc__)
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT") or 0), help="of the page; 0: a free one")
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo", help="folder of the runs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
