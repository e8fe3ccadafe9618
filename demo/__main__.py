"""`make demo`: a real Airflow on this machine runs a scheduled DAG that trains, verifies and evaluates a model.

`make demo-cluster`: the same DAG file, and the jobs are pods of a Kubernetes cluster; only the configuration differs.

Nothing of it is staged: the schedule makes the run, the scheduler, the triggerer and a worker do the work, and what is
shown comes from Airflow's REST API. Everything that is started here is stopped again, also after Ctrl-C and errors.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console

from demo.cluster import Cluster
from demo.folder import ROOT, Folder, make_folder
from demo.machine import Machine
from demo.processes import StackFailed
from demo.stack import Stack, StackConfig
from demo.story import Story, wait_for_scheduled_run
from demo.summary import summarize
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import pytorchjob

if TYPE_CHECKING:
    from demo.place import Place

DAG_ID = "digits"
CLUSTER_IMAGE = "ghcr.io/ptjob-provider/digits:test"
RUN_TIMEOUT = 900


def main() -> int:
    """Run the demonstration and return the exit code: 0 if the run succeeded."""
    args = parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    folder = make_folder(args.folder)
    place = place_of(args, folder)
    stack = Stack(stack_config(folder, place, port=args.port))
    try:
        return show(stack, folder, place, console, keep_page=args.ui)
    except KeyboardInterrupt:
        console.print("\ninterrupted")
        return 130
    except (StackFailed, TimeoutError, PTJobError) as error:
        console.print(f"[red]the demonstration failed:[/] {error}", soft_wrap=True)
        return 1
    finally:
        ignore_interrupts()
        console.print("[dim]stopping what was started …[/]")
        stack.stop()
        clean_up(place, console)


def show(stack: Stack, folder: Folder, place: Place, console: Console, *, keep_page: bool) -> int:
    """Start Airflow, let the schedule make the run, show it, and return the exit code."""
    began = time.monotonic()
    console.print(f"[bold]Airflow[/] in {folder.shown}: its own database, scheduler, triggerer and page")
    console.print(f"[bold]Jobs[/] {place.title}")
    place.prepare()
    stack.start(tell=lambda part: console.print(f"  {part:<14} ready after {time.monotonic() - began:4.1f} s"))
    stack.api.wait_for_dag(DAG_ID)
    stack.api.unpause(DAG_ID)
    run_id = wait_for_scheduled_run(stack, DAG_ID)
    console.print(f"{DAG_ID} was unpaused, and its schedule made the run [bold]{run_id}[/]")
    state = Story(stack, console, DAG_ID, run_id).tell(timeout=RUN_TIMEOUT)
    console.rule(f"the run ended as {state} after {time.monotonic() - began:.0f} s in all")
    console.print(summarize(stack, folder, place, DAG_ID, run_id))
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


def place_of(args: argparse.Namespace, folder: Folder) -> Place:
    """Return where the jobs run: here, or where a kubeconfig leads to."""
    if args.kubeconfig is None:
        return Machine(folder=folder)
    return Cluster(kubeconfig=args.kubeconfig.absolute(), image=args.image, namespace=f"digits-demo-{folder.path.name}")


def stack_config(folder: Folder, place: Place, *, port: int = 0) -> StackConfig:
    """Say how this Airflow runs: our DAGs, deferred, and jobs in that place."""
    return StackConfig(
        home=folder.home,
        dags=ROOT / "dags",
        port=port,
        settings={
            "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True",
            "AIRFLOW__PTJOB__INSTANCE": "demo",
            **place.settings,
        },
        migrated_database=folder.path.parent / f"migrated-{version('apache-airflow')}.db",
    )


def clean_up(place: Place, console: Console) -> None:
    """Stop what still trains, or say why that is impossible."""
    try:
        asyncio.run(stop_jobs(place))
    except PTJobError as error:
        console.print(f"[red]jobs may still run:[/] {error}", soft_wrap=True)


async def stop_jobs(place: Place) -> None:
    """Stop what still trains; pods may take their grace to end."""
    backend = place.backend()
    for job in await backend.list(pytorchjob.KIND, place.namespace, {}):
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
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        nargs="?",
        const=os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config",
        help="run the jobs as pods of this cluster; without a file: of %(const)s",
    )
    parser.add_argument("--image", default=CLUSTER_IMAGE, help="the digits image there (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo", help="where runs keep their things")
    return parser.parse_args()


def _interrupt(number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    sys.exit(main())
