"""`make demo`: a real Airflow on this machine runs a scheduled DAG that trains, verifies and evaluates a model.

Nothing of it is staged: the schedule makes the run, the scheduler, the triggerer and a worker do the work, and what is
shown comes from Airflow's REST API. Everything that is started here is stopped again, also after Ctrl-C and errors.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from demo.folder import ROOT, Folder, make_folder
from demo.processes import StackFailed
from demo.stack import Stack, StackConfig
from demo.story import Story, wait_for_scheduled_run
from demo.summary import summarize
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import pytorchjob
from ptjob_provider.core.local import LocalBackend, LocalConfig

DAG_ID = "digits"
IMAGE = "digits"
RUN_TIMEOUT = 900


def main() -> int:
    """Run the demonstration and return the exit code: 0 if the run succeeded."""
    args = parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    folder = make_folder(args.folder)
    stack = Stack(stack_config(folder, port=args.port))
    try:
        return show(stack, folder, console, keep_page=args.ui)
    except KeyboardInterrupt:
        console.print("\ninterrupted")
        return 130
    except (StackFailed, TimeoutError) as error:
        console.print(f"[red]the demonstration failed:[/] {error}", soft_wrap=True)
        return 1
    finally:
        ignore_interrupts()
        console.print("[dim]stopping what was started …[/]")
        stop_jobs(folder)
        stack.stop()


def show(stack: Stack, folder: Folder, console: Console, *, keep_page: bool) -> int:
    """Start Airflow, let the schedule make the run, show it, and return the exit code."""
    began = time.monotonic()
    console.print(f"[bold]Airflow[/] in {folder.shown}: its own database, scheduler, triggerer and page")
    stack.start(tell=lambda part: console.print(f"  {part:<14} ready after {time.monotonic() - began:4.1f} s"))
    stack.api.wait_for_dag(DAG_ID)
    stack.api.unpause(DAG_ID)
    run_id = wait_for_scheduled_run(stack, DAG_ID)
    console.print(f"{DAG_ID} was unpaused, and its schedule made the run [bold]{run_id}[/]")
    state = Story(stack, console, DAG_ID, run_id).tell(timeout=RUN_TIMEOUT)
    console.rule(f"the run ended as {state} after {time.monotonic() - began:.0f} s in all")
    console.print(summarize(stack, folder, DAG_ID, run_id))
    if keep_page:
        serve(stack, console, run_id)
    return 0 if state == "success" else 1


def serve(stack: Stack, console: Console, run_id: str) -> None:
    """Keep Airflow's page until Ctrl-C."""
    console.print(f"\n[bold]{stack.url}/dags/{DAG_ID}/runs/{run_id}[/]\nCtrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            stack.check_alive()
            time.sleep(1)


def stack_config(folder: Folder, *, port: int = 0) -> StackConfig:
    """Say how this Airflow runs: our DAGs, jobs as processes of this machine."""
    images = {IMAGE: {"context": str(ROOT / "docker" / "digits")}}
    ptjob = {
        "backend": "local",
        "instance": "demo",
        "local_root": str(folder.jobs),
        "local_images": json.dumps(images),
    }
    return StackConfig(
        home=folder.home,
        dags=ROOT / "dags",
        port=port,
        settings={
            "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True",
            **{f"AIRFLOW__PTJOB__{name.upper()}": value for name, value in ptjob.items()},
        },
        migrated_database=folder.path.parent / f"migrated-{version('apache-airflow')}.db",
    )


def stop_jobs(folder: Folder) -> None:
    """Stop what still trains; afterwards no process of a job runs."""
    if folder.jobs.exists():
        asyncio.run(_stop_jobs(LocalBackend(LocalConfig(root=folder.jobs))))


async def _stop_jobs(backend: LocalBackend) -> None:
    for job in await backend.list(pytorchjob.KIND, "default", {}):
        if not pytorchjob.read_status(job).phase.is_terminal:
            await backend.delete(JobRef.of(job))


def ignore_interrupts() -> None:
    """Let nobody interrupt what comes, until this process ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--ui", action="store_true", help="keep Airflow's page until Ctrl-C")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT") or 0), help="of the page; 0: a free one")
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo", help="where runs keep their things")
    return parser.parse_args()


def _interrupt(number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    sys.exit(main())
